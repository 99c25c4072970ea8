# Derived from eopipe/stages by `eopipe sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe train
doc: Train a segmentation model on chips with torchrun and DDP.
s:license: https://spdx.org/licenses/Apache-2.0
requirements:
  NetworkAccess:
    networkAccess: false
  ResourceRequirement:
    coresMin: 2
    coresMax: 2
    ramMin: 4000
    ramMax: 8000
  LoadListingRequirement:
    loadListing: no_listing
  EnvVarRequirement:
    envDef:
      EOPIPE_VERSION: 0.1.0
hints:
  SoftwareRequirement:
    packages:
      eopipe:
        version:
        - 0.1.0
        specs:
        - https://github.com/eopipe/eopipe
baseCommand:
- eopipe
- train
inputs:
  tiles:
    type:
      type: array
      items: Directory
    label: tiles
    doc: tile stores of all scenes
    inputBinding:
      prefix: --tiles
  labels:
    type:
      type: array
      items: Directory
    label: labels
    doc: label store of all scenes, or one for each
    inputBinding:
      prefix: --labels
  chips:
    type: File
    label: chips
    doc: samples of each split
    inputBinding:
      prefix: --chips
  statistics:
    type: File
    label: statistics
    doc: what the bands measure in the training chips
    inputBinding:
      prefix: --statistics
  model_name:
    type: string
    label: model
    doc: weights (safetensors), model.json, history.json
    default: model
    inputBinding:
      prefix: --model
  architecture:
    type: string
    label: architecture
    doc: unet, or module:Class of your own
    default: unet
    inputBinding:
      prefix: --architecture
  width:
    type: int
    label: width
    doc: channels of the first level
    default: 16
    inputBinding:
      prefix: --width
  depth:
    type: int
    label: depth
    doc: times the model halves its input
    default: 2
    inputBinding:
      prefix: --depth
  epochs:
    type: int
    label: epochs
    doc: passes over the training chips
    default: 10
    inputBinding:
      prefix: --epochs
  batch:
    type: int
    label: batch
    doc: chips of a step, over all processes
    default: 32
    inputBinding:
      prefix: --batch
  learning_rate:
    type: double
    label: learning rate
    doc: highest learning rate of AdamW
    default: 0.004
    inputBinding:
      prefix: --learning-rate
  weight_decay:
    type: double
    label: weight decay
    doc: decoupled weight decay
    default: 0.01
    inputBinding:
      prefix: --weight-decay
  warmup:
    type: double
    label: warmup
    doc: share of the steps in which the learning rate rises
    default: 0.2
    inputBinding:
      prefix: --warmup
  augment:
    type: string
    label: augment
    doc: turn chips by the symmetries of the square (none or symmetries)
    default: symmetries
    inputBinding:
      prefix: --augment
  precision:
    type: string
    label: precision
    doc: bf16 computes with autocast (fp32 or bf16)
    default: fp32
    inputBinding:
      prefix: --precision
  seed:
    type: int
    label: seed
    doc: seed of the weights, the order and the augmentation
    default: 0
    inputBinding:
      prefix: --seed
  processes:
    type: int
    label: processes
    doc: processes on the node; plain DDP sums in their order
    default: 1
    inputBinding:
      prefix: --processes
  threads:
    type: int
    label: threads
    doc: threads of a process; more change the order of sums
    default: 1
    inputBinding:
      prefix: --threads
  device:
    type: string
    label: device
    doc: where to compute (auto or cpu or cuda)
    default: auto
    inputBinding:
      prefix: --device
  checkpoint_every:
    type: int
    label: checkpoint every
    doc: steps between checkpoints
    default: 50
    inputBinding:
      prefix: --checkpoint-every
  keep:
    type: int
    label: keep
    doc: checkpoints to keep
    default: 2
    inputBinding:
      prefix: --keep
  cache_mb:
    type: int
    label: cache mb
    doc: memory of a process for tiles, in MB
    default: 1024
    inputBinding:
      prefix: --cache-mb
  timeout_s:
    type: double
    label: timeout s
    doc: seconds after which a silent worker counts as hung
    default: 600.0
    inputBinding:
      prefix: --timeout-s
  state:
    type:
    - 'null'
    - string
    label: state
    doc: folder of checkpoints; beside the model if not given
    inputBinding:
      prefix: --state
outputs:
  model:
    type: Directory
    label: model
    doc: weights (safetensors), model.json, history.json
    outputBinding:
      glob: $(inputs.model_name)
  record:
    type: File
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.model_name).run.json
