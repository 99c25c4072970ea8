# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe train
doc: 'Train a model on chips: segmentation, classification, multilabel or regression, on any number of processes.'
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
    ramMin: $(inputs.mem_mb)
    ramMax: $(inputs.mem_mb)
  ToolTimeLimit:
    timelimit: $(inputs.timelimit_s)
  LoadListingRequirement:
    loadListing: no_listing
  EnvVarRequirement:
    envDef:
      EOPIPE_VERSION: 0.1.0
  InitialWorkDirRequirement:
    listing:
    - entryname: tiles.list.json
      entry: '$(inputs.tiles)

        '
    - entryname: labels.list.json
      entry: '$(inputs.labels)

        '
    - entryname: state
      entry: $(inputs.state)
      writable: true
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
arguments:
- --tiles
- '@tiles.list.json'
- --labels
- '@labels.list.json'
- --state
- state
inputs:
  tiles:
    type:
      type: array
      items: Directory
    label: tiles
    doc: tile stores of all scenes
  labels:
    type:
      type: array
      items: Directory
    label: labels
    doc: label store for all scenes, or one per scene
  chips:
    type: File
    label: chips
    doc: 'split file: chips of the train, val and test splits'
    format: iana:application/json
    inputBinding:
      prefix: --chips
  statistics:
    type: File
    label: statistics
    doc: band statistics of the training chips
    format: iana:application/json
    inputBinding:
      prefix: --statistics
  model_name:
    type: string
    label: model
    doc: 'model folder: weights (safetensors), STAC Item, history and metrics (JSON)'
    default: model
    inputBinding:
      prefix: --model
  init:
    type:
    - 'null'
    - Directory
    label: init
    doc: 'fine-tuning: model folder of eopipe to initialise the weights from; for other classes the head is new'
    inputBinding:
      prefix: --init
  model_files:
    type:
      type: array
      items:
      - File
      - Directory
    label: model files
    doc: 'code of a custom model: modules and packages, and files that its arguments name (default: found by architecture
      and arguments, beside the config)'
    default: []
    inputBinding:
      prefix: --model-files
  continued:
    type:
    - 'null'
    - Directory
    label: continued
    doc: 'model folder of the same training with --until: its checkpoint is where this one starts'
    inputBinding:
      prefix: --continued
  promoted:
    type:
    - 'null'
    - File
    label: promoted
    doc: 'file with the names of the folders that may continue, as {promoted: [names]}: a folder --continued that
      it does not name is copied, without its checkpoint, and no step is taken'
    format: iana:application/json
    inputBinding:
      prefix: --promoted
  until:
    type:
    - 'null'
    - double
    label: until
    doc: share of the steps after which the training pauses, at the next validation; the model folder then has the
      checkpoint from which another training continues
    inputBinding:
      prefix: --until
  task:
    type: string
    label: task
    doc: 'learning task: the class of each pixel, the majority class of each chip, all classes of each chip (multilabel),
      or the value of each pixel (classification or multilabel or regression or segmentation)'
    default: segmentation
    inputBinding:
      prefix: --task
  min_share:
    type: double
    label: min share
    doc: minimum share of the labelled pixels of a chip that a class needs to be one of its labels, for task multilabel
    default: 0.05
    inputBinding:
      prefix: --min-share
  architecture:
    type: string
    label: architecture
    doc: 'model architecture: unet, convnext, temporal; forest, boosting or linear on pixels and their texture;
      or a class of your own or of a library as module:Class or file.py:Class'
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
    doc: 'downsampling levels: how often the model halves its input'
    default: 2
    inputBinding:
      prefix: --depth
  arguments:
    type:
      type: array
      items: string
    label: arguments
    doc: further model arguments as name=value, with values in JSON, e.g. size=tiny
    default: []
    inputBinding:
      prefix: --arguments
  weights_bands:
    type:
      type: array
      items: string
    label: weights bands
    doc: 'bands of pretrained weights of a custom model, in their order, e.g. red green blue: its first layer is
      changed to the bands of the run by name'
    default: []
    inputBinding:
      prefix: --weights-bands
  weights_mean:
    type:
      type: array
      items: double
    label: weights mean
    doc: 'mean of each band of weights_bands that the weights expect (default: training chips)'
    default: []
    inputBinding:
      prefix: --weights-mean
  weights_std:
    type:
      type: array
      items: double
    label: weights std
    doc: standard deviation of each band of weights_bands that the weights expect
    default: []
    inputBinding:
      prefix: --weights-std
  weights_scale:
    type: double
    label: weights scale
    doc: 'unit of weights_mean and weights_std: what 1 in the unit of the tiles is in theirs, e.g. 10000 for digital
      numbers of a reflectance'
    default: 1.0
    inputBinding:
      prefix: --weights-scale
  freeze:
    type:
      type: array
      items: string
    label: freeze
    doc: prefixes of parameter names to freeze, e.g. encoder.
    default: []
    inputBinding:
      prefix: --freeze
  lora:
    type: int
    label: lora
    doc: 'rank of LoRA adapters in the frozen layers, through peft (eopipe[lora]); 0: off'
    default: 0
    inputBinding:
      prefix: --lora
  steps:
    type:
    - 'null'
    - int
    label: steps
    doc: 'number of training steps (default: 200 to 750, by the labelled pixels of the training; where a chip has
      one label 200, or 10 passes over the chips)'
    inputBinding:
      prefix: --steps
  epochs:
    type:
    - 'null'
    - int
    label: epochs
    doc: number of epochs, passes over the pixels of the training chips; in place of steps
    inputBinding:
      prefix: --epochs
  batch:
    type:
    - 'null'
    - int
    label: batch
    doc: 'global batch size: chips per step over all processes (default: 8; where a chip has one label, as many
      as have 262,144 pixels, from 8 to 64)'
    inputBinding:
      prefix: --batch
  crop:
    type:
    - 'null'
    - int
    label: crop
    doc: 'edge in pixels of the random crops around labelled pixels that a step takes of its chips; 0: whole chips
      (default: 32, or 64 for chips of 256 and more, where labels are of pixels and the model takes any window)'
    inputBinding:
      prefix: --crop
  averaged_with:
    type:
      type: array
      items: string
    label: averaged with
    doc: 'models of pixels that are fitted beside a network: the model is the mean of all; or none (default: forest
      and linear for unet where labels are of pixels) (none or forest or boosting or linear)'
    default: []
    inputBinding:
      prefix: --averaged-with
  max_pixels:
    type: int
    label: max pixels
    doc: largest number of labelled pixels that forest, boosting and linear learn from, drawn at random of more
    default: 100000
    inputBinding:
      prefix: --max-pixels
  learning_rate:
    type: double
    label: learning rate
    doc: peak learning rate of AdamW
    default: 0.004
    inputBinding:
      prefix: --learning-rate
  head_learning_rate:
    type:
    - 'null'
    - double
    label: head learning rate
    doc: 'fine-tuning to other classes: peak learning rate of the new head (default: learning_rate)'
    inputBinding:
      prefix: --head-learning-rate
  schedule:
    type: string
    label: schedule
    doc: learning-rate schedule after warm-up (cosine or linear or polynomial or step or constant)
    default: cosine
    inputBinding:
      prefix: --schedule
  weight_decay:
    type: double
    label: weight decay
    doc: decoupled weight decay of AdamW
    default: 0.01
    inputBinding:
      prefix: --weight-decay
  warmup:
    type: double
    label: warmup
    doc: learning-rate warm-up as a fraction of all steps
    default: 0.2
    inputBinding:
      prefix: --warmup
  loss:
    type:
    - 'null'
    - string
    label: loss
    doc: 'loss function (default: cross_entropy; binary_cross_entropy for multilabel, huber for regression); dice
      and lovasz are means over chips, not pixels (cross_entropy or focal or dice or lovasz or huber or mse or binary_cross_entropy
      or binary_focal)'
    inputBinding:
      prefix: --loss
  class_weights:
    type:
    - 'null'
    - string
    label: class weights
    doc: 'class weights in cross_entropy and focal: the inverse frequency to a power, of 1 for balanced (the same
      total weight for every class), 1/2 for sqrt, 1/4 for fourth_root (default where the loss takes weights); for
      multilabel, weights of the chips with a class against those without it (none or fourth_root or sqrt or balanced)'
    inputBinding:
      prefix: --class-weights
  ema:
    type: double
    label: ema
    doc: 'EMA decay per step; the averaged weights are validated and saved; 0: off'
    default: 0.0
    inputBinding:
      prefix: --ema
  patience:
    type: int
    label: patience
    doc: 'early stopping after this many validations without a better val score, with the best weights; 0: never'
    default: 0
    inputBinding:
      prefix: --patience
  augment:
    type:
      type: array
      items: string
    label: augment
    doc: 'data augmentation: symmetries (flips, rotations), brightness, haze, bands (dropped at random); or none
      (none or symmetries or brightness or haze or bands)'
    default:
    - symmetries
    inputBinding:
      prefix: --augment
  shuffle:
    type: string
    label: shuffle
    doc: 'shuffling: a permutation of all chips, or block by block for data larger than memory (chips or blocks)'
    default: chips
    inputBinding:
      prefix: --shuffle
  window:
    type: int
    label: window
    doc: 'shuffle window: blocks that are mixed at a time'
    default: 16
    inputBinding:
      prefix: --window
  block:
    type: int
    label: block
    doc: edge in pixels of the blocks that are read and cached
    default: 1024
    inputBinding:
      prefix: --block
  precision:
    type: string
    label: precision
    doc: floating-point precision; bf16 and fp16 are AMP (autocast), fp16 with a loss scale (fp32 or bf16 or fp16)
    default: fp32
    inputBinding:
      prefix: --precision
  seed:
    type: int
    label: seed
    doc: random seed of weights, data order and augmentation
    default: 0
    inputBinding:
      prefix: --seed
  processes:
    type: int
    label: processes
    doc: processes per node; without deterministic their number changes the last bits
    default: 1
    inputBinding:
      prefix: --processes
  nodes:
    type: string
    label: nodes
    doc: number of nodes, or MIN:MAX for elastic training
    default: '1'
    inputBinding:
      prefix: --nodes
  threads:
    type: int
    label: threads
    doc: CPU threads per process; more change the order of sums
    default: 1
    inputBinding:
      prefix: --threads
  deterministic:
    type: boolean
    label: deterministic
    doc: 'same weights for any number of processes: gradients of virtual shards are summed in a fixed order'
    default: false
    inputBinding:
      prefix: --deterministic
  shards:
    type: int
    label: shards
    doc: virtual shards of a batch in deterministic mode; at least the number of processes
    default: 4
    inputBinding:
      prefix: --shards
  strategy:
    type: string
    label: strategy
    doc: 'parallel strategy: DDP (whole weights in each process) or FSDP2 (sharded weights) (ddp or fsdp)'
    default: ddp
    inputBinding:
      prefix: --strategy
  accumulate:
    type: int
    label: accumulate
    doc: gradient-accumulation micro-batches per step
    default: 1
    inputBinding:
      prefix: --accumulate
  clip:
    type:
    - 'null'
    - double
    label: clip
    doc: 'gradient clipping: clip gradients to this norm'
    inputBinding:
      prefix: --clip
  compile:
    type: boolean
    label: compile
    doc: compile the model with torch.compile; without a compiler it runs uncompiled
    default: false
    inputBinding:
      prefix: --compile
  channels_last:
    type: boolean
    label: channels last
    doc: channels-last memory format
    default: false
    inputBinding:
      prefix: --channels-last
  recompute:
    type: boolean
    label: recompute
    doc: 'activation checkpointing: recompute activations in the backward pass to save memory'
    default: false
    inputBinding:
      prefix: --recompute
  device:
    type: string
    label: device
    doc: device to compute on (auto or cpu or cuda)
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
    doc: number of newest checkpoints to keep, besides the best
    default: 2
    inputBinding:
      prefix: --keep
  cache_mb:
    type: int
    label: cache mb
    doc: tile cache of each process in MB
    default: 1024
    inputBinding:
      prefix: --cache-mb
  workers:
    type:
    - 'null'
    - int
    label: workers
    doc: 'data-loader processes for each process (default: 0 on a CPU, 2 on a GPU)'
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
    doc: restarts of lost or hung workers
    default: 3
    inputBinding:
      prefix: --restarts
  scratch:
    type:
    - 'null'
    - string
    label: scratch
    doc: local folder of each node, e.g. $TMPDIR, for a copy of the data during the training
    inputBinding:
      prefix: --scratch
  state:
    type:
    - 'null'
    - Directory
    label: state
    doc: 'folder of checkpoints (default: beside the model)'
  track:
    type:
      type: array
      items: string
    label: track
    doc: experiment trackers that follow the training while it runs (tensorboard or mlflow or prometheus)
    default: []
    inputBinding:
      prefix: --track
  profile:
    type: boolean
    label: profile
    doc: 'profiler: write a trace of a few steps and a table of their operators'
    default: false
    inputBinding:
      prefix: --profile
  views:
    type:
    - 'null'
    - string
    label: views
    doc: 'output folder of track and profile (default: beside the model)'
    inputBinding:
      prefix: --views
  tell_every_s:
    type: double
    label: tell every s
    doc: seconds between two progress lines of the log
    default: 30.0
    inputBinding:
      prefix: --tell-every-s
  settings:
    type:
    - 'null'
    - string
    label: settings of a trial
    doc: options by their names in JSON, in the place of the inputs of these names
    inputBinding:
      prefix: --settings
  mem_mb:
    type: int
    label: memory
    doc: memory of the job in MB
    default: 5048
  timelimit_s:
    type: int
    label: time limit
    doc: seconds after which the job is ended
    default: 3600
outputs:
  model:
    type:
    - 'null'
    - Directory
    label: model
    doc: 'model folder: weights (safetensors), STAC Item, history and metrics (JSON)'
    outputBinding:
      glob: $(inputs.model_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.model_name).run.json
  checkpoints:
    type:
    - 'null'
    - Directory
    label: checkpoints
    doc: checkpoints of a training that did not end, for the input `state`
    outputBinding:
      glob: state
temporaryFailCodes:
- 5
- 75
permanentFailCodes:
- 2
- 3
- 4
- 6
- 7
- 8
- 9
- 70
