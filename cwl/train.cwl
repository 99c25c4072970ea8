# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe train
doc: 'Train a model on chips with torchrun and DDP: of pixels, of whole chips, or of values.'
intent:
- edam:operation_2426
s:license: https://spdx.org/licenses/Apache-2.0
s:author:
- s:name: The eopipe team
  s:email: team@example.org
  s:url: https://github.com/eopipe/eopipe
requirements:
  NetworkAccess:
    networkAccess: false
  ResourceRequirement:
    coresMin: $(inputs.processes)
    coresMax: $(inputs.processes)
    ramMin: 5048
    ramMax: 15144
  ToolTimeLimit:
    timelimit: 9600
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
    format: iana:application/json
    inputBinding:
      prefix: --chips
  statistics:
    type: File
    label: statistics
    doc: what the bands measure in the training chips
    format: iana:application/json
    inputBinding:
      prefix: --statistics
  model_name:
    type: string
    label: model
    doc: weights (safetensors), model, history and metrics (JSON)
    default: model
    inputBinding:
      prefix: --model
  task:
    type: string
    label: task
    doc: 'what is learned: the class of each pixel, the class of most pixels of a chip, or each pixel''s value (segmentation
      or classification or regression)'
    default: segmentation
    inputBinding:
      prefix: --task
  init:
    type:
    - 'null'
    - Directory
    label: init
    doc: model by eopipe whose weights it begins with
    inputBinding:
      prefix: --init
  architecture:
    type: string
    label: architecture
    doc: unet, convnext, temporal, or module:Class of your own
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
  arguments:
    type:
      type: array
      items: string
    label: arguments
    doc: 'further parameters of the model as name=value, with values in JSON: size=tiny'
    default: []
    inputBinding:
      prefix: --arguments
  freeze:
    type:
      type: array
      items: string
    label: freeze
    doc: 'starts of the names of parameters that stay as they are: encoder.'
    default: []
    inputBinding:
      prefix: --freeze
  lora:
    type: int
    label: lora
    doc: rank of the change that frozen layers learn, through peft (eopipe[lora]); 0 for none
    default: 0
    inputBinding:
      prefix: --lora
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
  schedule:
    type: string
    label: schedule
    doc: how the learning rate goes on (cosine or linear or polynomial or step or constant)
    default: cosine
    inputBinding:
      prefix: --schedule
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
  loss:
    type:
    - 'null'
    - string
    label: loss
    doc: 'what is made small: cross_entropy if not given, or huber in a regression; dice and lovasz are means over
      chips, not pixels (cross_entropy or focal or dice or lovasz or huber or mse)'
    inputBinding:
      prefix: --loss
  class_weights:
    type: string
    label: class weights
    doc: balanced lets every class count alike in cross_entropy and focal (none or balanced)
    default: none
    inputBinding:
      prefix: --class-weights
  ema:
    type: double
    label: ema
    doc: decay a step of the average of the weights that is judged and published; 0 for none
    default: 0.0
    inputBinding:
      prefix: --ema
  patience:
    type: int
    label: patience
    doc: 'epochs without a better val score to stop after, with the best epoch''s weights; 0: never'
    default: 0
    inputBinding:
      prefix: --patience
  augment:
    type:
      type: array
      items: string
    label: augment
    doc: 'change training chips: turn them, change their light, veil them with haze, drop bands; or none (none or
      symmetries or brightness or haze or bands)'
    default:
    - symmetries
    inputBinding:
      prefix: --augment
  shuffle:
    type: string
    label: shuffle
    doc: 'deal out all chips evenly, or read block by block: for data beyond memory (chips or blocks)'
    default: chips
    inputBinding:
      prefix: --shuffle
  window:
    type: int
    label: window
    doc: blocks that are mixed at a time
    default: 16
    inputBinding:
      prefix: --window
  block:
    type: int
    label: block
    doc: edge in pixels of what is read and kept at a time
    default: 1024
    inputBinding:
      prefix: --block
  precision:
    type: string
    label: precision
    doc: bf16 and fp16 compute with autocast, fp16 with a loss scale (fp32 or bf16 or fp16)
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
    doc: processes on a node; plain DDP sums in their order
    default: 1
    inputBinding:
      prefix: --processes
  nodes:
    type: string
    label: nodes
    doc: 'nodes that train together: 2, or the fewest and the most of those that come and go: 1:4'
    default: '1'
    inputBinding:
      prefix: --nodes
  threads:
    type: int
    label: threads
    doc: threads of a process; more change the order of sums
    default: 1
    inputBinding:
      prefix: --threads
  deterministic:
    type: boolean
    label: deterministic
    doc: 'the same weights whatever the number of processes: shards summed in a fixed order'
    default: false
    inputBinding:
      prefix: --deterministic
  shards:
    type: int
    label: shards
    doc: parts of a batch in deterministic mode; at least the processes
    default: 4
    inputBinding:
      prefix: --shards
  strategy:
    type: string
    label: strategy
    doc: 'whole weights in each process, or FSDP2: parts of them (ddp or fsdp)'
    default: ddp
    inputBinding:
      prefix: --strategy
  accumulate:
    type: int
    label: accumulate
    doc: passes of a step, each over a part of the batch
    default: 1
    inputBinding:
      prefix: --accumulate
  clip:
    type:
    - 'null'
    - double
    label: clip
    doc: largest norm of a step's gradient
    inputBinding:
      prefix: --clip
  compile:
    type: boolean
    label: compile
    doc: compile the model; without a compiler it runs as it is
    default: false
    inputBinding:
      prefix: --compile
  channels_last:
    type: boolean
    label: channels last
    doc: images with channels innermost in memory
    default: false
    inputBinding:
      prefix: --channels-last
  recompute:
    type: boolean
    label: recompute
    doc: 'save memory: compute activations twice instead of keeping them'
    default: false
    inputBinding:
      prefix: --recompute
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
  workers:
    type:
    - 'null'
    - int
    label: workers
    doc: 'processes that read chips for each process; not given: none on a CPU, 2 on a GPU'
    inputBinding:
      prefix: --workers
  timeout_s:
    type: double
    label: timeout s
    doc: seconds after which a silent worker counts as hung
    default: 600.0
    inputBinding:
      prefix: --timeout-s
  restarts:
    type: int
    label: restarts
    doc: times that lost or hung workers are started again
    default: 3
    inputBinding:
      prefix: --restarts
  scratch:
    type:
    - 'null'
    - string
    label: scratch
    doc: folder on a node's own disk, as $TMPDIR, for a copy of the data while it trains
    inputBinding:
      prefix: --scratch
  state:
    type:
    - 'null'
    - string
    label: state
    doc: folder of checkpoints; beside the model if not given
    inputBinding:
      prefix: --state
  track:
    type:
      type: array
      items: string
    label: track
    doc: what to show the training in, while it runs (tensorboard or mlflow or prometheus)
    default: []
    inputBinding:
      prefix: --track
  profile:
    type: boolean
    label: profile
    doc: write a trace of a few steps, and a table of what they do
    default: false
    inputBinding:
      prefix: --profile
  views:
    type:
    - 'null'
    - string
    label: views
    doc: folder of what track and profile write; beside the model if not given
    inputBinding:
      prefix: --views
  tell_every_s:
    type: double
    label: tell every s
    doc: seconds between two lines about the progress
    default: 30.0
    inputBinding:
      prefix: --tell-every-s
outputs:
  model:
    type: Directory
    label: model
    doc: weights (safetensors), model, history and metrics (JSON)
    outputBinding:
      glob: $(inputs.model_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.model_name).run.json
