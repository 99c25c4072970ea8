# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: Workflow
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe fold
doc: One fold of a cross-validation, split, trained, mapped and evaluated; the name of every output contains the
  fold's number.
intent:
- edam:operation_2426
- edam:operation_2428
s:license: https://spdx.org/licenses/Apache-2.0
s:author:
- s:name: The eopipe team
  s:email: team@example.org
  s:url: https://github.com/eopipe/eopipe
requirements:
  MultipleInputFeatureRequirement: {}
  ScatterFeatureRequirement: {}
  StepInputExpressionRequirement: {}
  SubworkflowFeatureRequirement: {}
inputs:
  fold:
    type: int
    label: fold
    doc: fold used for testing, from 0
  folds:
    type: int
    label: folds
    doc: number of folds, at least 3
  tiles:
    type:
      type: array
      items: Directory
    label: tiles
    doc: tile stores of all images
  labels:
    type:
      type: array
      items: Directory
    label: labels
    doc: label store of all scenes, or one for each
  mosaic:
    type: boolean
    label: mosaic
    doc: map all images as one
  images:
    type: boolean
    label: images
    doc: map each image by itself
  cells:
    type: string[]
    label: cells
    doc: cells that have a map each; an empty text for the only cell
  endings:
    type: string[]
    label: endings
    doc: what the names of the maps of the cells end with
  image_stores:
    type: Directory[]
    label: image stores
    doc: tile store of each image, once for each of its cells
    default: []
  image_cells:
    type: string[]
    label: image cells
    doc: the cell of each of them
    default: []
  image_endings:
    type: string[]
    label: image endings
    doc: what the name of its map ends with
    default: []
  split_chip:
    type: int
    label: split.chip
    doc: edge of a chip in pixels
    default: 256
  split_stride:
    type:
    - 'null'
    - int
    label: split.stride
    doc: 'step between chips in pixels (default: the edge of a chip)'
  split_method:
    type: string
    label: split.method
    doc: 'random blocks; checkerboard, one colour for train; strips in the order train, val, test; temporal: scenes
      by date; group: whole groups; random: single chips, which leaks between neighbours and must be allowed (blocks
      or checkerboard or west-east or east-west or north-south or south-north or temporal or group or random)'
    default: blocks
  split_fractions:
    type:
      type: array
      items: double
    label: split.fractions
    doc: fractions of train, val and test
    default:
    - 0.7
    - 0.15
    - 0.15
  split_block:
    type: int
    label: split.block
    doc: edge of a block, or of a square of the checkerboard, in pixels
    default: 1024
  split_buffer:
    type: int
    label: split.buffer
    doc: minimum distance between splits in pixels
    default: 0
  split_dates:
    type:
      type: array
      items: string
    label: split.dates
    doc: 'temporal split: first day of val and of test, or of test only'
    default: []
  split_by:
    type: string
    label: split.by
    doc: 'group split: unit that is kept whole; a scene of a chip set is an image file, a tile is of MGRS or WRS-2,
      a polygon of the labels, whose pixels are masked in the chips of other splits, a column of the index of a
      chip set (scene or tile or region or polygon or column)'
    default: scene
  split_val_groups:
    type:
      type: array
      items: string
    label: split.val_groups
    doc: names of the validation groups
    default: []
  split_test_groups:
    type:
      type: array
      items: string
    label: split.test_groups
    doc: 'names of the test groups; all others train (default: groups at random)'
    default: []
  split_regions:
    type:
    - 'null'
    - File
    label: split.regions
    doc: polygons of the regions of a group split
  split_attribute:
    type: string
    label: split.attribute
    doc: attribute with the region of a polygon, or column of a chip set
    default: region
  split_block_km:
    type: double
    label: split.block_km
    doc: edge in km of the equal-area blocks of a chip set (eopipe import)
    default: 50.0
  split_min_valid:
    type:
    - 'null'
    - double
    label: split.min_valid
    doc: 'minimum fraction of valid, labelled pixels in a chip (default: 0.5; of polygons and points 0, any pixel)'
  split_seed:
    type: int
    label: split.seed
    doc: seed of random assignments
    default: 0
  split_allow:
    type:
      type: array
      items: string
    label: split.allow
    doc: 'accepted findings of the leakage audit, each as ''kind: reason'''
    default: []
  split_mem_mb:
    type: int
    label: memory of split
    doc: memory of the job in MB
    default: 2000
  split_timelimit_s:
    type: int
    label: time limit of split
    doc: seconds after which the job is ended
    default: 19800
  train_init:
    type:
    - 'null'
    - Directory
    label: train.init
    doc: 'fine-tuning: model folder of eopipe to initialise the weights from; for other classes the head is new'
  train_model_files:
    type:
      type: array
      items:
      - File
      - Directory
    label: train.model_files
    doc: 'code of a custom model: modules and packages, and files that its arguments name (default: found by architecture
      and arguments, beside the config)'
    default: []
  train_task:
    type: string
    label: train.task
    doc: 'learning task: the class of each pixel, the majority class of each chip, all classes of each chip (multilabel),
      or the value of each pixel (classification or multilabel or regression or segmentation)'
    default: segmentation
  train_min_share:
    type: double
    label: train.min_share
    doc: minimum share of the labelled pixels of a chip that a class needs to be one of its labels, for task multilabel
    default: 0.05
  train_architecture:
    type: string
    label: train.architecture
    doc: 'model architecture: unet, convnext, temporal; forest, boosting or linear on pixels and their texture;
      or a class of your own or of a library as module:Class or file.py:Class'
    default: unet
  train_width:
    type: int
    label: train.width
    doc: channels of the first level
    default: 16
  train_depth:
    type: int
    label: train.depth
    doc: 'downsampling levels: how often the model halves its input'
    default: 2
  train_arguments:
    type:
      type: array
      items: string
    label: train.arguments
    doc: further model arguments as name=value, with values in JSON, e.g. size=tiny
    default: []
  train_weights_bands:
    type:
      type: array
      items: string
    label: train.weights_bands
    doc: 'bands of pretrained weights of a custom model, in their order, e.g. red green blue: its first layer is
      changed to the bands of the run by name'
    default: []
  train_weights_mean:
    type:
      type: array
      items: double
    label: train.weights_mean
    doc: 'mean of each band of weights_bands that the weights expect (default: training chips)'
    default: []
  train_weights_std:
    type:
      type: array
      items: double
    label: train.weights_std
    doc: standard deviation of each band of weights_bands that the weights expect
    default: []
  train_weights_scale:
    type: double
    label: train.weights_scale
    doc: 'unit of weights_mean and weights_std: what 1 in the unit of the tiles is in theirs, e.g. 10000 for digital
      numbers of a reflectance'
    default: 1.0
  train_freeze:
    type:
      type: array
      items: string
    label: train.freeze
    doc: prefixes of parameter names to freeze, e.g. encoder.
    default: []
  train_lora:
    type: int
    label: train.lora
    doc: 'rank of LoRA adapters in the frozen layers, through peft (eopipe[lora]); 0: off'
    default: 0
  train_steps:
    type:
    - 'null'
    - int
    label: train.steps
    doc: 'number of training steps (default: 200 to 750, by the labelled pixels of the training; where a chip has
      one label 200, or 10 passes over the chips)'
  train_epochs:
    type:
    - 'null'
    - int
    label: train.epochs
    doc: number of epochs, passes over the pixels of the training chips; in place of steps
  train_batch:
    type:
    - 'null'
    - int
    label: train.batch
    doc: 'global batch size: chips per step over all processes (default: 8; where a chip has one label, as many
      as have 262,144 pixels, from 8 to 64)'
  train_crop:
    type:
    - 'null'
    - int
    label: train.crop
    doc: 'edge in pixels of the random crops around labelled pixels that a step takes of its chips; 0: whole chips
      (default: 32, or 64 for chips of 256 and more, where labels are of pixels and the model takes any window)'
  train_averaged_with:
    type:
      type: array
      items: string
    label: train.averaged_with
    doc: 'models of pixels that are fitted beside a network: the model is the mean of all; or none (default: forest
      and linear for unet where labels are of pixels) (none or forest or boosting or linear)'
    default: []
  train_max_pixels:
    type: int
    label: train.max_pixels
    doc: largest number of labelled pixels that forest, boosting and linear learn from, drawn at random of more
    default: 100000
  train_learning_rate:
    type: double
    label: train.learning_rate
    doc: peak learning rate of AdamW
    default: 0.004
  train_head_learning_rate:
    type:
    - 'null'
    - double
    label: train.head_learning_rate
    doc: 'fine-tuning to other classes: peak learning rate of the new head (default: learning_rate)'
  train_schedule:
    type: string
    label: train.schedule
    doc: learning-rate schedule after warm-up (cosine or linear or polynomial or step or constant)
    default: cosine
  train_weight_decay:
    type: double
    label: train.weight_decay
    doc: decoupled weight decay of AdamW
    default: 0.01
  train_warmup:
    type: double
    label: train.warmup
    doc: learning-rate warm-up as a fraction of all steps
    default: 0.2
  train_loss:
    type:
    - 'null'
    - string
    label: train.loss
    doc: 'loss function (default: cross_entropy; binary_cross_entropy for multilabel, huber for regression); dice
      and lovasz are means over chips, not pixels (cross_entropy or focal or dice or lovasz or huber or mse or binary_cross_entropy
      or binary_focal)'
  train_class_weights:
    type:
    - 'null'
    - string
    label: train.class_weights
    doc: 'class weights in cross_entropy and focal: the inverse frequency to a power, of 1 for balanced (the same
      total weight for every class), 1/2 for sqrt, 1/4 for fourth_root (default where the loss takes weights); for
      multilabel, weights of the chips with a class against those without it (none or fourth_root or sqrt or balanced)'
  train_ema:
    type: double
    label: train.ema
    doc: 'EMA decay per step; the averaged weights are validated and saved; 0: off'
    default: 0.0
  train_patience:
    type: int
    label: train.patience
    doc: 'early stopping after this many validations without a better val score, with the best weights; 0: never'
    default: 0
  train_augment:
    type:
      type: array
      items: string
    label: train.augment
    doc: 'data augmentation: symmetries (flips, rotations), brightness, haze, bands (dropped at random); or none
      (none or symmetries or brightness or haze or bands)'
    default:
    - symmetries
  train_shuffle:
    type: string
    label: train.shuffle
    doc: 'shuffling: a permutation of all chips, or block by block for data larger than memory (chips or blocks)'
    default: chips
  train_window:
    type: int
    label: train.window
    doc: 'shuffle window: blocks that are mixed at a time'
    default: 16
  train_block:
    type: int
    label: train.block
    doc: edge in pixels of the blocks that are read and cached
    default: 1024
  train_precision:
    type: string
    label: train.precision
    doc: floating-point precision; bf16 and fp16 are AMP (autocast), fp16 with a loss scale (fp32 or bf16 or fp16)
    default: fp32
  train_seed:
    type: int
    label: train.seed
    doc: random seed of weights, data order and augmentation
    default: 0
  train_processes:
    type: int
    label: train.processes
    doc: processes per node; without deterministic their number changes the last bits
    default: 1
  train_nodes:
    type: string
    label: train.nodes
    doc: number of nodes, or MIN:MAX for elastic training
    default: '1'
  train_threads:
    type: int
    label: train.threads
    doc: CPU threads per process; more change the order of sums
    default: 1
  train_deterministic:
    type: boolean
    label: train.deterministic
    doc: 'same weights for any number of processes: gradients of virtual shards are summed in a fixed order'
    default: false
  train_shards:
    type: int
    label: train.shards
    doc: virtual shards of a batch in deterministic mode; at least the number of processes
    default: 4
  train_strategy:
    type: string
    label: train.strategy
    doc: 'parallel strategy: DDP (whole weights in each process) or FSDP2 (sharded weights) (ddp or fsdp)'
    default: ddp
  train_accumulate:
    type: int
    label: train.accumulate
    doc: gradient-accumulation micro-batches per step
    default: 1
  train_clip:
    type:
    - 'null'
    - double
    label: train.clip
    doc: 'gradient clipping: clip gradients to this norm'
  train_compile:
    type: boolean
    label: train.compile
    doc: compile the model with torch.compile; without a compiler it runs uncompiled
    default: false
  train_channels_last:
    type: boolean
    label: train.channels_last
    doc: channels-last memory format
    default: false
  train_recompute:
    type: boolean
    label: train.recompute
    doc: 'activation checkpointing: recompute activations in the backward pass to save memory'
    default: false
  train_device:
    type: string
    label: train.device
    doc: device to compute on (auto or cpu or cuda)
    default: auto
  train_checkpoint_every:
    type: int
    label: train.checkpoint_every
    doc: steps between checkpoints
    default: 50
  train_keep:
    type: int
    label: train.keep
    doc: number of newest checkpoints to keep, besides the best
    default: 2
  train_cache_mb:
    type: int
    label: train.cache_mb
    doc: tile cache of each process in MB
    default: 1024
  train_workers:
    type:
    - 'null'
    - int
    label: train.workers
    doc: 'data-loader processes for each process (default: 0 on a CPU, 2 on a GPU)'
  train_timeout_s:
    type: double
    label: train.timeout_s
    doc: seconds after which a silent worker counts as hung
    default: 600.0
  train_restarts:
    type: int
    label: train.restarts
    doc: restarts of lost or hung workers
    default: 3
  train_scratch:
    type:
    - 'null'
    - string
    label: train.scratch
    doc: local folder of each node, e.g. $TMPDIR, for a copy of the data during the training
  train_track:
    type:
      type: array
      items: string
    label: train.track
    doc: experiment trackers that follow the training while it runs (tensorboard or mlflow or prometheus)
    default: []
  train_profile:
    type: boolean
    label: train.profile
    doc: 'profiler: write a trace of a few steps and a table of their operators'
    default: false
  train_tell_every_s:
    type: double
    label: train.tell_every_s
    doc: seconds between two progress lines of the log
    default: 30.0
  train_mem_mb:
    type: int
    label: memory of train
    doc: memory of the job in MB
    default: 5048
  train_timelimit_s:
    type: int
    label: time limit of train
    doc: seconds after which the job is ended
    default: 3600
  calibrate_mem_mb:
    type: int
    label: memory of calibrate
    doc: memory of the job in MB
    default: 3000
  calibrate_timelimit_s:
    type: int
    label: time limit of calibrate
    doc: seconds after which the job is ended
    default: 21600
  predict_allow:
    type:
      type: array
      items: string
    label: predict.allow
    doc: 'accepted differences of the tiles from the training tiles, each as ''kind: reason'', with a kind of pixel-size,
      unit, level'
    default: []
  predict_halo:
    type:
    - 'null'
    - int
    label: predict.halo
    doc: 'pixels read around each window (default: receptive-field radius)'
  predict_window:
    type: int
    label: predict.window
    doc: edge of a window in pixels; memory grows with its square
    default: 512
  predict_symmetries:
    type: int
    label: predict.symmetries
    doc: 'predictions of each window whose mean is the map: 1 (as it is), 2 (also flipped left to right), 4 (the
      rotations) or 8 (rotations and flips); costs as many times more'
    default: 1
  predict_device:
    type: string
    label: predict.device
    doc: device to compute on (auto or cpu or cuda)
    default: auto
  predict_threads:
    type: int
    label: predict.threads
    doc: 'windows that are predicted at a time, each by one thread; 0: one per core, at most 8'
    default: 0
  predict_mem_mb:
    type: int
    label: memory of predict
    doc: memory of the job in MB
    default: 3000
  predict_timelimit_s:
    type: int
    label: time limit of predict
    doc: seconds after which the job is ended
    default: 21600
  evaluate_mem_mb:
    type: int
    label: memory of evaluate
    doc: memory of the job in MB
    default: 3000
  evaluate_timelimit_s:
    type: int
    label: time limit of evaluate
    doc: seconds after which the job is ended
    default: 7200
  report_colors:
    type:
      type: array
      items: string
    label: report.colors
    doc: 'colour of each class as #rrggbb; a colour-blind-safe palette if not given'
    default: []
steps:
  split:
    label: split
    doc: Cut the grid into chips, assign them to splits by place, date or group, and audit the splits for leakage.
    run: split.cwl
    in:
      chip: split_chip
      stride: split_stride
      method: split_method
      fractions: split_fractions
      block: split_block
      buffer: split_buffer
      folds: folds
      fold: fold
      dates: split_dates
      by: split_by
      val_groups: split_val_groups
      test_groups: split_test_groups
      regions: split_regions
      attribute: split_attribute
      block_km: split_block_km
      min_valid: split_min_valid
      seed: split_seed
      allow: split_allow
      mem_mb: split_mem_mb
      timelimit_s: split_timelimit_s
      tiles: tiles
      labels: labels
      chips_name:
        valueFrom: split-fold-$(inputs.fold).json
      statistics_name:
        valueFrom: statistics-fold-$(inputs.fold).json
      map_name:
        valueFrom: split-fold-$(inputs.fold).png
      outlines_name:
        valueFrom: split-fold-$(inputs.fold).gpkg
    out:
    - chips
    - statistics
    - map
    - outlines
    - record
  train:
    label: train
    doc: 'Train a model on chips: segmentation, classification, multilabel or regression, on any number of processes.'
    run: train.cwl
    in:
      init: train_init
      model_files: train_model_files
      task: train_task
      min_share: train_min_share
      architecture: train_architecture
      width: train_width
      depth: train_depth
      arguments: train_arguments
      weights_bands: train_weights_bands
      weights_mean: train_weights_mean
      weights_std: train_weights_std
      weights_scale: train_weights_scale
      freeze: train_freeze
      lora: train_lora
      steps: train_steps
      epochs: train_epochs
      batch: train_batch
      crop: train_crop
      averaged_with: train_averaged_with
      max_pixels: train_max_pixels
      learning_rate: train_learning_rate
      head_learning_rate: train_head_learning_rate
      schedule: train_schedule
      weight_decay: train_weight_decay
      warmup: train_warmup
      loss: train_loss
      class_weights: train_class_weights
      ema: train_ema
      patience: train_patience
      augment: train_augment
      shuffle: train_shuffle
      window: train_window
      block: train_block
      precision: train_precision
      seed: train_seed
      processes: train_processes
      nodes: train_nodes
      threads: train_threads
      deterministic: train_deterministic
      shards: train_shards
      strategy: train_strategy
      accumulate: train_accumulate
      clip: train_clip
      compile: train_compile
      channels_last: train_channels_last
      recompute: train_recompute
      device: train_device
      checkpoint_every: train_checkpoint_every
      keep: train_keep
      cache_mb: train_cache_mb
      workers: train_workers
      timeout_s: train_timeout_s
      restarts: train_restarts
      scratch: train_scratch
      track: train_track
      profile: train_profile
      tell_every_s: train_tell_every_s
      mem_mb: train_mem_mb
      timelimit_s: train_timelimit_s
      tiles: tiles
      labels: labels
      chips: split/chips
      statistics: split/statistics
      fold: fold
      model_name:
        valueFrom: model-fold-$(inputs.fold)
    out:
    - model
    - record
    - checkpoints
  calibrate:
    label: calibrate
    doc: Fit one temperature for the probabilities of a map on its validation places (temperature scaling).
    run: calibrate.cwl
    in:
      halo: predict_halo
      window: predict_window
      symmetries: predict_symmetries
      device: predict_device
      allow_code: train_architecture
      threads: predict_threads
      mem_mb: calibrate_mem_mb
      timelimit_s: calibrate_timelimit_s
      model:
        source:
        - train/model
        linkMerge: merge_nested
        pickValue: the_only_non_null
        valueFrom: $(self)
      tiles: tiles
      labels: labels
      chips: split/chips
      fold: fold
      calibration_name:
        valueFrom: calibration-fold-$(inputs.fold).json
    out:
    - calibration
    - record
  predict:
    label: predict
    doc: Predict a seamless map of classes and their probabilities, or of values, window by window.
    run: predict.cwl
    scatter:
    - cell
    - ending
    scatterMethod: dotproduct
    when: $(inputs.wanted)
    in:
      allow: predict_allow
      halo: predict_halo
      window: predict_window
      symmetries: predict_symmetries
      device: predict_device
      threads: predict_threads
      colors: report_colors
      allow_code: train_architecture
      mem_mb: predict_mem_mb
      timelimit_s: predict_timelimit_s
      model:
        source:
        - train/model
        linkMerge: merge_nested
        pickValue: the_only_non_null
        valueFrom: $(self)
      tiles: tiles
      calibration: calibrate/calibration
      wanted: mosaic
      cell: cells
      ending: endings
      fold: fold
      classes_name:
        valueFrom: classes-fold-$(inputs.fold)$(inputs.ending).tif
      probabilities_name:
        valueFrom: probabilities-fold-$(inputs.fold)$(inputs.ending).tif
    out:
    - classes
    - probabilities
    - record
  predict_images:
    label: predict images
    doc: Map each image by itself, where labels or splits differ between them; scatter over the images.
    run: image-map.cwl
    scatter:
    - image
    - cell
    - ending
    scatterMethod: dotproduct
    when: $(inputs.wanted)
    in:
      image: image_stores
      cell: image_cells
      ending: image_endings
      model:
        source:
        - train/model
        linkMerge: merge_nested
        pickValue: the_only_non_null
        valueFrom: $(self)
      calibration: calibrate/calibration
      wanted: images
      classes_name:
        valueFrom: classes-fold-$(inputs.fold)-$(inputs.image.basename)$(inputs.ending).tif
      probabilities_name:
        valueFrom: probabilities-fold-$(inputs.fold)-$(inputs.image.basename)$(inputs.ending).tif
      train_architecture: train_architecture
      predict_allow: predict_allow
      predict_halo: predict_halo
      predict_window: predict_window
      predict_symmetries: predict_symmetries
      predict_device: predict_device
      predict_threads: predict_threads
      predict_mem_mb: predict_mem_mb
      predict_timelimit_s: predict_timelimit_s
      report_colors: report_colors
      fold: fold
    out:
    - classes
    - probabilities
    - record
  evaluate:
    label: evaluate
    doc: Score the map against the labels in the test areas, beside the majority class and other baselines.
    run: evaluate.cwl
    in:
      mem_mb: evaluate_mem_mb
      timelimit_s: evaluate_timelimit_s
      classes:
        source:
        - predict/classes
        - predict_images/classes
        linkMerge: merge_flattened
        pickValue: all_non_null
      tiles: tiles
      labels: labels
      chips: split/chips
      probabilities:
        source:
        - predict/probabilities
        - predict_images/probabilities
        linkMerge: merge_flattened
        pickValue: all_non_null
      fold: fold
      metrics_name:
        valueFrom: metrics-fold-$(inputs.fold).json
    out:
    - metrics
    - record
outputs:
  metrics:
    type: File
    label: metrics
    doc: scores of the fold
    format: iana:application/json
    outputSource: evaluate/metrics
  model:
    type:
    - 'null'
    - Directory
    label: model
    doc: trained model of the fold
    outputSource: train/model
  split_record:
    type:
    - 'null'
    - File
    label: record of split
    doc: run record of the job
    format: iana:application/json
    outputSource: split/record
  train_record:
    type:
    - 'null'
    - File
    label: record of train
    doc: run record of the job
    format: iana:application/json
    outputSource: train/record
  calibrate_record:
    type:
    - 'null'
    - File
    label: record of calibrate
    doc: run record of the job
    format: iana:application/json
    outputSource: calibrate/record
  predict_record:
    type:
    - 'null'
    - type: array
      items:
      - 'null'
      - File
    label: record of predict
    doc: run record of the job
    format: iana:application/json
    outputSource: predict/record
  predict_images_record:
    type:
    - 'null'
    - type: array
      items:
      - 'null'
      - File
    label: record of predict images
    doc: run record of the job
    format: iana:application/json
    outputSource: predict_images/record
  evaluate_record:
    type:
    - 'null'
    - File
    label: record of evaluate
    doc: run record of the job
    format: iana:application/json
    outputSource: evaluate/record
