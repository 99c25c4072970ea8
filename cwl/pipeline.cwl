# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: Workflow
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe
doc: Satellite scenes to a trained, evaluated, mapped and citable model.
intent:
- edam:operation_2426
- edam:operation_2423
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
  search_catalog:
    type:
    - 'null'
    - File
    - Directory
    label: search.catalog
    doc: 'folder of a static STAC catalog, or STAC-GeoParquet: a file, or a folder of such files'
  search_area:
    type:
    - 'null'
    - File
    label: search.area
    doc: GeoJSON of the area of interest, in degrees
  search_url:
    type:
    - 'null'
    - string
    label: search.url
    doc: URL of a STAC API or of a static catalog
  search_collections:
    type:
      type: array
      items: string
    label: search.collections
    doc: STAC collections to search; all if empty
    default: []
  search_bbox:
    type:
      type: array
      items: double
    label: search.bbox
    doc: 'bounding box: west south east north, in degrees'
    default: []
  search_datetime:
    type:
    - 'null'
    - string
    label: search.datetime
    doc: date or interval of acquisition, e.g. 2020-05-01/2020-09-30
  search_max_cloud:
    type: double
    label: search.max_cloud
    doc: maximum cloud cover of a scene (eo:cloud_cover), in percent
    default: 100.0
  search_ids:
    type:
      type: array
      items: string
    label: search.ids
    doc: only these scenes, by id
    default: []
  search_assets:
    type:
      type: array
      items: string
    label: search.assets
    doc: keys of the assets to fetch; every scene must have them
    default:
    - blue
    - green
    - red
    - nir
    - scl
  search_on_missing:
    type: string
    label: search.on_missing
    doc: 'scenes that lack one of the assets: fail and list them, or skip them (fail or skip)'
    default: fail
  search_best:
    type:
    - 'null'
    - int
    label: search.best
    doc: 'number of least cloudy scenes to keep in each time window (default: all)'
  search_per:
    type: string
    label: search.per
    doc: time window that best applies to (all or year or month or week or day)
    default: all
  search_group:
    type: string
    label: search.group
    doc: 'what best counts: single scenes, or all scenes of a local solar day (UTC + 1 h per 15 degrees) together
      (scene or solar-day)'
    default: scene
  search_crs:
    type: string
    label: search.crs
    doc: 'CRS of the grid as EPSG:code; auto: the one of the scenes, or the UTM zone of the area; utm: cells, one
      for each UTM zone and distant part of the area'
    default: auto
  search_resolution:
    type:
    - 'null'
    - double
    label: search.resolution
    doc: 'pixel size of the grid in units of the CRS (default: the finest of grid_assets)'
  search_grid_assets:
    type:
    - 'null'
    - type: array
      items: string
    label: search.grid_assets
    doc: 'assets whose CRS and pixels the grid follows (default: all assets; in a config preprocess.bands, so that
      neither masks nor labels set the pixel size)'
  search_deadline:
    type: double
    label: search.deadline
    doc: time limit for the whole search, in seconds
    default: 900.0
  search_mem_mb:
    type: int
    label: memory of search
    doc: memory of the job in MB
    default: 1000
  search_timelimit_s:
    type: int
    label: time limit of search
    doc: seconds after which the job is ended
    default: 1800
  fetch_windows:
    type: boolean
    label: fetch.windows
    doc: 'fetch windows: only the blocks of (cloud-optimised) GeoTIFFs that the grid needs'
    default: false
  fetch_workers:
    type: int
    label: fetch.workers
    doc: parallel downloads
    default: 4
  fetch_deadline:
    type: double
    label: fetch.deadline
    doc: time limit for one asset with all its retries, in seconds
    default: 3600.0
  fetch_sign:
    type: string
    label: fetch.sign
    doc: service that signs asset URLs; auto chooses by host (auto or none or planetary-computer)
    default: auto
  fetch_private_hosts:
    type:
      type: array
      items: string
    label: fetch.private_hosts
    doc: hosts inside a private network that assets may be fetched from, as name or name:port (in a config also
      the host of search.url)
    default: []
  fetch_mem_mb:
    type: int
    label: memory of fetch
    doc: memory of the job in MB
    default: 1000
  fetch_timelimit_s:
    type: int
    label: time limit of fetch
    doc: seconds after which the job is ended
    default: 10800
  preprocess_bands:
    type:
      type: array
      items: string
    label: preprocess.bands
    doc: band names, in channel order; visual#2 is the second band of an asset
    default:
    - blue
    - green
    - red
    - nir
  preprocess_mask:
    type: string
    label: preprocess.mask
    doc: 'mask asset, e.g. scl: which pixels are usable; none masks only nodata'
    default: scl
  preprocess_mask_as:
    type: string
    label: preprocess.mask_as
    doc: 'kind of the mask asset; auto: known from its name (auto or classes or bits or probability)'
    default: auto
  preprocess_masked:
    type:
      type: array
      items: int
    label: preprocess.masked
    doc: 'classes or bits of the mask asset that are masked (default: the standard ones)'
    default: []
  preprocess_max_probability:
    type: double
    label: preprocess.max_probability
    doc: cloud probability in percent above which pixels are masked
    default: 40.0
  preprocess_dilate:
    type: int
    label: preprocess.dilate
    doc: 'mask dilation: also mask this many grid pixels around masked ones'
    default: 0
  preprocess_saturated:
    type:
    - 'null'
    - double
    label: preprocess.saturated
    doc: stored value at or above which a pixel is saturated, and masked
  preprocess_offset:
    type:
    - 'null'
    - double
    label: preprocess.offset
    doc: 'offset of reflectance where neither item nor product state it: -0.1 for Sentinel-2 since processing baseline
      04.00, 0 before or where it was removed'
  preprocess_decibel:
    type: boolean
    label: preprocess.decibel
    doc: convert linear radar power to dB
    default: false
  preprocess_resampling:
    type: string
    label: preprocess.resampling
    doc: resampling kernel of the bands; masks use nearest (nearest or bilinear or cubic or average or mode)
    default: bilinear
  preprocess_on_bad:
    type: string
    label: preprocess.on_bad
    doc: 'bad data of a scene, such as a missing band, or a file that is refused: stop the run, or leave_out the
      scene, with the reason in log, split, report and cards (stop or leave_out)'
    default: stop
  preprocess_chunk:
    type: int
    label: preprocess.chunk
    doc: edge of a chunk, the read unit, in pixels; about the chip size
    default: 256
  preprocess_shard:
    type: int
    label: preprocess.shard
    doc: edge of a shard, one file, in pixels
    default: 4096
  preprocess_codec:
    type: string
    label: preprocess.codec
    doc: 'compression codec: lz4 decodes faster, zstd is smaller (lz4 or zstd)'
    default: lz4
  preprocess_threads:
    type: int
    label: preprocess.threads
    doc: 'threads that decode, resample and encode; 0: one per core'
    default: 0
  preprocess_mem_mb:
    type: int
    label: memory of preprocess
    doc: memory of the job in MB
    default: 1500
  preprocess_timelimit_s:
    type: int
    label: time limit of preprocess
    doc: seconds after which the job is ended
    default: 3600
  composite_method:
    type: string
    label: composite.method
    doc: 'how observations are combined: median of each band, or for all bands the observation nearest the middle
      of the period (middle), of highest NDVI (greenest) or of lowest blue (clearest); none: train on scenes (none
      or median or middle or greenest or clearest)'
    default: none
  composite_period:
    type: string
    label: composite.period
    doc: length of a period; there is one composite per period (all or year or season or month)
    default: all
  composite_stack:
    type: string
    label: composite.stack
    doc: stack these parts of a period as separate bands, e.g. red_JJA; of all time also years, e.g. red_2019 (none
      or year or season or month)
    default: none
  composite_parts:
    type:
      type: array
      items: string
    label: composite.parts
    doc: 'parts to stack, e.g. 2017 2021, MAM JJA or 05 06 (default: all parts with scenes)'
    default: []
  composite_gaps:
    type: string
    label: composite.gaps
    doc: 'a stacked season or month without an observation of a pixel: filled with the median of the parts that
      have one, where these are at least half; or the pixel is invalid, as it always is where a year lacks one (fill
      or invalid)'
    default: fill
  composite_memory_mb:
    type: int
    label: composite.memory_mb
    doc: memory limit in MB for the pixels of all dates; larger grids are read block by block
    default: 512
  composite_mem_mb:
    type: int
    label: memory of composite
    doc: memory of the job in MB
    default: 1512
  composite_timelimit_s:
    type: int
    label: time limit of composite
    doc: seconds after which the job is ended
    default: 1980
  label_source:
    type:
    - 'null'
    - File
    label: label.source
    doc: raster or vector file with the labels of all scenes
  label_before:
    type:
    - 'null'
    - File
    label: label.before
    doc: 'change: raster or vector file with the labels of an earlier date, in the same classes; labels become from-to
      classes'
  label_asset:
    type:
    - 'null'
    - string
    label: label.asset
    doc: asset of each scene that holds its labels, instead of source
  label_classes:
    type:
      type: array
      items: string
    label: label.classes
    doc: class names, in the order of the class numbers 0, 1, …
    default:
    - non-forest
    - forest
  label_bins:
    type:
      type: array
      items: double
    label: label.bins
    doc: edges between the classes of a continuous raster, in physical units
    default: []
  label_codes:
    type:
      type: array
      items: int
    label: label.codes
    doc: 'source value of each class (default: 0, 1, …, if the raster has no other value)'
    default: []
  label_values:
    type:
      type: array
      items: string
    label: label.values
    doc: 'class=value for each source value, also several per class: town=1 town=2; =3 means unlabelled'
    default: []
  label_measure:
    type:
    - 'null'
    - string
    label: label.measure
    doc: quantity of continuous labels, for train.task regression; without it labels are classes
  label_unit:
    type: string
    label: label.unit
    doc: unit of the quantity
    default: ''
  label_ignore:
    type:
      type: array
      items: int
    label: label.ignore
    doc: source values that mean unlabelled
    default: []
  label_attribute:
    type: string
    label: label.attribute
    doc: attribute of a vector file with the class, or with the value of the quantity
    default: class
  label_layer:
    type:
    - 'null'
    - string
    label: label.layer
    doc: layer of a vector file with several layers
  label_dates:
    type:
    - 'null'
    - string
    label: label.dates
    doc: 'date or interval, as in search.datetime, of the features of a vector file that count: by its column date,
      or start_date and end_date, or by those that are named, as in seen=2019 and first,last=2019'
  label_overlap:
    type: string
    label: label.overlap
    doc: 'where shapes of different labels overlap: unlabelled, or last or first in the file (invalid or last or
      first)'
    default: invalid
  label_all_touched:
    type: boolean
    label: label.all_touched
    doc: rasterise shapes to all pixels they touch, not only to contained centres
    default: false
  label_resampling:
    type: string
    label: label.resampling
    doc: 'resampling of label rasters: nearest or mode for classes; nearest, bilinear, cubic or average for a measure
      and before bins; auto: average if such a raster is finer than the grid, else nearest (auto or nearest or mode
      or bilinear or cubic or average)'
    default: auto
  label_chunk:
    type: int
    label: label.chunk
    doc: edge of a chunk, the read unit, in pixels
    default: 256
  label_shard:
    type: int
    label: label.shard
    doc: edge of a shard, one file, in pixels
    default: 4096
  label_mem_mb:
    type: int
    label: memory of label
    doc: memory of the job in MB
    default: 1500
  label_timelimit_s:
    type: int
    label: time limit of label
    doc: seconds after which the job is ended
    default: 3600
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
  split_folds:
    type: int
    label: split.folds
    doc: 'number of cross-validation folds; 0: one split by the fractions'
    default: 0
  split_fold:
    type: int
    label: split.fold
    doc: number of the test fold, from 0
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
  choose_score:
    type:
    - 'null'
    - string
    label: choose.score
    doc: 'score that ranks the trials; lower is better for rmse, mae and hamming_loss (default: miou; f1_macro for
      multilabel, rmse for regression) (accuracy or miou or f1_macro or kappa or f1_micro or subset_accuracy or
      hamming_loss or rmse or mae or r2)'
  choose_mem_mb:
    type: int
    label: memory of choose
    doc: memory of the job in MB
    default: 3000
  choose_timelimit_s:
    type: int
    label: time limit of choose
    doc: seconds after which the job is ended
    default: 5400
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
  evaluate_sample:
    type:
      type: array
      items: File
    label: evaluate.sample
    doc: 'labelled files of a sample, as eopipe sample writes it: one for each interpreter'
    default: []
  evaluate_sample_design:
    type:
    - 'null'
    - File
    label: evaluate.sample_design
    doc: design of the sample, where the labels are a CSV apart from sample.json
  evaluate_label_column:
    type: string
    label: evaluate.label_column
    doc: column of the labels in the files of the sample
    default: label
  evaluate_require:
    type:
      type: array
      items: string
    label: evaluate.require
    doc: 'figures that the map must reach, or nothing is published (exit code 9): scores, gain over the baseline
      (lower end of its interval), area_error (standard error / area) and accuracies of areas'
    default: []
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
  estimate_mem_mb:
    type: int
    label: memory of estimate
    doc: memory of the job in MB
    default: 1000
  estimate_timelimit_s:
    type: int
    label: time limit of estimate
    doc: seconds after which the job is ended
    default: 21600
  export_mem_mb:
    type: int
    label: memory of export
    doc: memory of the job in MB
    default: 2500
  export_timelimit_s:
    type: int
    label: time limit of export
    doc: seconds after which the job is ended
    default: 3600
  report_title:
    type: string
    label: report.title
    doc: title of page, map, cards, catalog and crate; of a chip set its name, if not given
    default: eopipe run
  report_attribution:
    type: string
    label: report.attribution
    doc: credit line of the data, on page and map
    default: ''
  report_use:
    type: string
    label: report.use
    doc: intended use of the model, for the model card
    default: ''
  report_limits:
    type:
      type: array
      items: string
    label: report.limits
    doc: known limits and unsuitable uses, for the model card
    default: []
  report_author:
    type: string
    label: report.author
    doc: authors to cite for the model
    default: ''
  report_colors:
    type:
      type: array
      items: string
    label: report.colors
    doc: 'colour of each class as #rrggbb; a colour-blind-safe palette if not given'
    default: []
  report_mem_mb:
    type: int
    label: memory of report
    doc: memory of the job in MB
    default: 2000
  report_timelimit_s:
    type: int
    label: time limit of report
    doc: seconds after which the job is ended
    default: 5400
  products_zones:
    type:
    - 'null'
    - File
    label: products.zones
    doc: 'polygons whose classes or values are summed up, in any CRS: a vector file'
  products_zone_name:
    type: string
    label: products.zone_name
    doc: attribute of the zones with their names
    default: name
  products_zone_layer:
    type:
    - 'null'
    - string
    label: products.zone_layer
    doc: layer of the zones, where the file has several
  products_minimum_mapping_unit_ha:
    type: double
    label: products.minimum_mapping_unit_ha
    doc: 'hectares below which a patch of one class gets the class of its largest neighbour, in the polygons only;
      0: none'
    default: 0.5
  products_mem_mb:
    type: int
    label: memory of products
    doc: memory of the job in MB
    default: 6000
  products_timelimit_s:
    type: int
    label: time limit of products
    doc: seconds after which the job is ended
    default: 10800
  catalog_mem_mb:
    type: int
    label: memory of catalog
    doc: memory of the job in MB
    default: 1000
  catalog_timelimit_s:
    type: int
    label: time limit of catalog
    doc: seconds after which the job is ended
    default: 5400
  crate_description:
    type: string
    label: crate.description
    doc: description of the crate
    default: Satellite scenes to a trained, measured and mapped model, with the record of every job.
  crate_license:
    type: string
    label: crate.license
    doc: 'licence of crate, model, maps and tiles: SPDX identifier such as CC-BY-4.0, or URL; without it crate,
      cards and catalog say that none is stated'
    default: ''
  crate_author:
    type: string
    label: crate.author
    doc: name of the person who ran the pipeline
    default: ''
  crate_orcid:
    type:
    - 'null'
    - string
    label: crate.orcid
    doc: ORCID of the author
  crate_organization:
    type: string
    label: crate.organization
    doc: name of the author's organization, which is also the publisher
    default: ''
  crate_ror:
    type:
    - 'null'
    - string
    label: crate.ror
    doc: ROR id of the organization
  crate_coauthors:
    type:
      type: array
      items: string
    label: crate.coauthors
    doc: other authors, each as `Name ORCID; Organization`, the last two optional
    default: []
  crate_funding:
    type:
      type: array
      items: string
    label: crate.funding
    doc: 'funders, each as `Name: grant` or `ROR URL: grant`, the grant optional'
    default: []
  crate_mem_mb:
    type: int
    label: memory of crate
    doc: memory of the job in MB
    default: 1000
  crate_timelimit_s:
    type: int
    label: time limit of crate
    doc: seconds after which the job is ended
    default: 3780
  with_rung_0:
    type: boolean
    label: with rung 0
    doc: compare the trials
    default: false
  rung_0_until:
    type: double
    label: rung 0
    doc: share of the steps after which the trials are compared
    default: 0.5
  rung_0_name:
    type: string
    label: name of rung 0
    doc: its file
    default: rung-0.json
  rung_0_count:
    type: int
    label: count of rung 0
    doc: trials that continue
    default: 1
  with_rung_1:
    type: boolean
    label: with rung 1
    doc: compare the trials
    default: false
  rung_1_until:
    type: double
    label: rung 1
    doc: share of the steps after which the trials are compared
    default: 0.5
  rung_1_name:
    type: string
    label: name of rung 1
    doc: its file
    default: rung-1.json
  rung_1_count:
    type: int
    label: count of rung 1
    doc: trials that continue
    default: 1
  with_rung_2:
    type: boolean
    label: with rung 2
    doc: compare the trials
    default: false
  rung_2_until:
    type: double
    label: rung 2
    doc: share of the steps after which the trials are compared
    default: 0.5
  rung_2_name:
    type: string
    label: name of rung 2
    doc: its file
    default: rung-2.json
  rung_2_count:
    type: int
    label: count of rung 2
    doc: trials that continue
    default: 1
  train_state:
    type:
    - 'null'
    - Directory
    label: state
    doc: checkpoints of a training that did not end
  map_parts:
    type: int
    label: map parts
    doc: 'parts of each map, which jobs of their own make and another one joins; 1: none'
    default: 1
  folds:
    type: int
    label: folds
    doc: 'number of folds of a cross-validation beside the model; 0: none'
    default: 0
  fold:
    type:
      type: array
      items: int
    label: fold numbers
    doc: folds to run, such as [0, 1, 2] of 3 folds
    default: []
  with_training:
    type: boolean
    label: with training
    doc: train one model; false with trials or members
    default: true
  with_trials:
    type: boolean
    label: with trials
    doc: choose the best of several trainings
    default: false
  with_members:
    type: boolean
    label: with members
    doc: combine several trainings into one
    default: false
  trial_names:
    type:
      type: array
      items: string
    label: trial names
    doc: names of the trials of the training
    default: []
  trial_settings:
    type:
      type: array
      items: string
    label: trial settings
    doc: options of train of each trial, in JSON
    default: []
  member_names:
    type:
      type: array
      items: string
    label: member names
    doc: numbers of the members of an ensemble
    default: []
  member_settings:
    type:
      type: array
      items: string
    label: member settings
    doc: options of train of each member, in JSON
    default: []
  with_onnx:
    type: boolean
    label: with ONNX
    doc: export the model to ONNX
    default: true
  with_report:
    type: boolean
    label: with report
    doc: make the report and the cards
    default: true
  with_products:
    type: boolean
    label: with products
    doc: make polygons, QGIS style and areas of zones of the maps
    default: false
  with_areas:
    type: boolean
    label: with areas
    doc: estimate areas from a labelled sample (evaluate_sample)
    default: false
  with_crate:
    type: boolean
    label: with crate
    doc: make the Provenance Run Crate
    default: true
  config:
    type:
    - 'null'
    - File
    label: config
    doc: config of the job, for the crate
    format: iana:application/yaml
  lock:
    type:
    - 'null'
    - File
    label: lock
    doc: pinned versions of the software, for the crate
    format: iana:text/plain
  workflow:
    type: File
    label: workflow
    doc: this workflow, which the crate contains; `eopipe cwl` gives it in one file
    default:
      class: File
      location: pipeline.cwl
steps:
  steps:
    label: steps
    doc: Decide which steps the settings need.
    run: steps.cwl
    in:
      label_asset: label_asset
      composite_method: composite_method
      split_method: split_method
      split_by: split_by
      with_labels:
        default: true
    out:
    - label_file
    - label_scenes
    - composite
    - mosaic
    - images
  search:
    label: search
    doc: Find scenes in a STAC catalog or API and freeze the list and the grid.
    run: search.cwl
    in:
      catalog: search_catalog
      area: search_area
      url: search_url
      collections: search_collections
      bbox: search_bbox
      datetime: search_datetime
      max_cloud: search_max_cloud
      ids: search_ids
      assets: search_assets
      on_missing: search_on_missing
      best: search_best
      per: search_per
      group: search_group
      crs: search_crs
      resolution: search_resolution
      grid_assets:
        source:
        - search_grid_assets
        - preprocess_bands
        pickValue: first_non_null
        valueFrom: $(self)
      deadline: search_deadline
      mem_mb: search_mem_mb
      timelimit_s: search_timelimit_s
    out:
    - items
    - items_each
    - grid
    - selection
    - record
  cells:
    label: cells
    doc: List the cells of the run.
    run: cells.cwl
    in:
      grid: search/grid
      map_parts: map_parts
    out:
    - cells
    - endings
    - parts
    - part_cells
    - part_endings
  images:
    label: images
    doc: List the cells of each image.
    run: images.cwl
    in:
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
      wanted: steps/images
    out:
    - image_stores
    - image_cells
    - image_endings
    when: $(inputs.wanted)
  fetch:
    label: fetch
    doc: Fetch the assets of one scene and verify size and checksum.
    run: fetch.cwl
    scatter: item
    in:
      windows: fetch_windows
      workers: fetch_workers
      deadline: fetch_deadline
      sign: fetch_sign
      private_hosts: fetch_private_hosts
      mem_mb: fetch_mem_mb
      timelimit_s: fetch_timelimit_s
      catalog: search_catalog
      grid: search/grid
      item: search/items_each
      scene_name:
        valueFrom: $(inputs.item.nameroot)
    out:
    - scene
    - record
  preprocess:
    label: preprocess
    doc: Resample one scene onto the grid and write it as a sharded Zarr store.
    run: preprocess.cwl
    scatter: scene
    in:
      bands: preprocess_bands
      mask: preprocess_mask
      mask_as: preprocess_mask_as
      masked: preprocess_masked
      max_probability: preprocess_max_probability
      dilate: preprocess_dilate
      saturated: preprocess_saturated
      offset: preprocess_offset
      decibel: preprocess_decibel
      resampling: preprocess_resampling
      on_bad: preprocess_on_bad
      chunk: preprocess_chunk
      shard: preprocess_shard
      codec: preprocess_codec
      threads: preprocess_threads
      mem_mb: preprocess_mem_mb
      timelimit_s: preprocess_timelimit_s
      scene: fetch/scene
      grid: search/grid
      tiles_name:
        valueFrom: $(inputs.scene.basename).zarr
    out:
    - tiles
    - record
  composite:
    label: composite
    doc: Composite the scenes of each period; without composites the model sees the scenes.
    run: composites.cwl
    when: $(inputs.wanted)
    in:
      tiles: preprocess/tiles
      items: search/items
      wanted: steps/composite
      composite_method: composite_method
      composite_period: composite_period
      composite_stack: composite_stack
      composite_parts: composite_parts
      composite_gaps: composite_gaps
      composite_memory_mb: composite_memory_mb
      composite_mem_mb: composite_mem_mb
      composite_timelimit_s: composite_timelimit_s
    out:
    - images
    - record
  label:
    label: label
    doc: Put labels onto the grid, as class numbers or as values of a quantity, with their valid mask.
    run: label.cwl
    when: $(inputs.wanted)
    in:
      source: label_source
      before: label_before
      asset: label_asset
      classes: label_classes
      bins: label_bins
      codes: label_codes
      values: label_values
      measure: label_measure
      unit: label_unit
      ignore: label_ignore
      attribute: label_attribute
      layer: label_layer
      dates: label_dates
      overlap: label_overlap
      all_touched: label_all_touched
      resampling: label_resampling
      chunk: label_chunk
      shard: label_shard
      mem_mb: label_mem_mb
      timelimit_s: label_timelimit_s
      grid: search/grid
      labels_name:
        default: labels-all.zarr
      wanted: steps/label_file
    out:
    - labels
    - record
  label_scenes:
    label: label scenes
    doc: Put labels onto the grid, as class numbers or as values of a quantity, with their valid mask.
    run: label.cwl
    scatter: scene
    when: $(inputs.wanted)
    in:
      source: label_source
      before: label_before
      asset: label_asset
      classes: label_classes
      bins: label_bins
      codes: label_codes
      values: label_values
      measure: label_measure
      unit: label_unit
      ignore: label_ignore
      attribute: label_attribute
      layer: label_layer
      dates: label_dates
      overlap: label_overlap
      all_touched: label_all_touched
      resampling: label_resampling
      chunk: label_chunk
      shard: label_shard
      mem_mb: label_mem_mb
      timelimit_s: label_timelimit_s
      grid: search/grid
      scene: fetch/scene
      labels_name:
        valueFrom: labels-$(inputs.scene.basename).zarr
      wanted: steps/label_scenes
    out:
    - labels
    - record
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
      folds: split_folds
      fold: split_fold
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
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
      labels:
        source:
        - label/labels
        - label_scenes/labels
        linkMerge: merge_flattened
        pickValue: all_non_null
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
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
      labels:
        source:
        - label/labels
        - label_scenes/labels
        linkMerge: merge_flattened
        pickValue: all_non_null
      chips: split/chips
      statistics: split/statistics
      state: train_state
      wanted: with_training
    out:
    - model
    - record
    - checkpoints
    when: $(inputs.wanted)
  rung_0:
    label: rung 0
    doc: 'Train a model on chips: segmentation, classification, multilabel or regression, on any number of processes.'
    run: train.cwl
    scatter:
    - name
    - settings
    scatterMethod: dotproduct
    when: $(inputs.wanted)
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
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
      labels:
        source:
        - label/labels
        - label_scenes/labels
        linkMerge: merge_flattened
        pickValue: all_non_null
      chips: split/chips
      statistics: split/statistics
      name: trial_names
      settings: trial_settings
      until: rung_0_until
      model_name:
        valueFrom: model-trial-$(inputs.name)
      wanted: with_rung_0
    out:
    - model
    - record
    - checkpoints
  promote_0:
    label: promote 0
    doc: Reduce several trainings to the best of trials, the trials that continue at a rung, or one model, their
      mean.
    run: choose.cwl
    when: $(inputs.wanted)
    in:
      mem_mb: choose_mem_mb
      timelimit_s: choose_timelimit_s
      reducer:
        default: halving
      models:
        source:
        - rung_0/model
        - trial_names
        pickValue: first_non_null
        valueFrom: $(self)
      count: rung_0_count
      rung_name: rung_0_name
      wanted: with_rung_0
    out:
    - model
    - leaderboard
    - page
    - rung
    - record
  rung_1:
    label: rung 1
    doc: 'Train a model on chips: segmentation, classification, multilabel or regression, on any number of processes.'
    run: train.cwl
    scatter:
    - name
    - settings
    - continued
    scatterMethod: dotproduct
    when: $(inputs.wanted)
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
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
      labels:
        source:
        - label/labels
        - label_scenes/labels
        linkMerge: merge_flattened
        pickValue: all_non_null
      chips: split/chips
      statistics: split/statistics
      name: trial_names
      settings: trial_settings
      until: rung_1_until
      model_name:
        valueFrom: model-trial-$(inputs.name)
      continued:
        source:
        - rung_0/model
        - trial_names
        pickValue: first_non_null
        valueFrom: $(self)
      promoted: promote_0/rung
      wanted: with_rung_1
    out:
    - model
    - record
    - checkpoints
  promote_1:
    label: promote 1
    doc: Reduce several trainings to the best of trials, the trials that continue at a rung, or one model, their
      mean.
    run: choose.cwl
    when: $(inputs.wanted)
    in:
      mem_mb: choose_mem_mb
      timelimit_s: choose_timelimit_s
      reducer:
        default: halving
      models:
        source:
        - rung_1/model
        - trial_names
        pickValue: first_non_null
        valueFrom: $(self)
      count: rung_1_count
      previous: promote_0/rung
      rung_name: rung_1_name
      wanted: with_rung_1
    out:
    - model
    - leaderboard
    - page
    - rung
    - record
  rung_2:
    label: rung 2
    doc: 'Train a model on chips: segmentation, classification, multilabel or regression, on any number of processes.'
    run: train.cwl
    scatter:
    - name
    - settings
    - continued
    scatterMethod: dotproduct
    when: $(inputs.wanted)
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
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
      labels:
        source:
        - label/labels
        - label_scenes/labels
        linkMerge: merge_flattened
        pickValue: all_non_null
      chips: split/chips
      statistics: split/statistics
      name: trial_names
      settings: trial_settings
      until: rung_2_until
      model_name:
        valueFrom: model-trial-$(inputs.name)
      continued:
        source:
        - rung_1/model
        - trial_names
        pickValue: first_non_null
        valueFrom: $(self)
      promoted: promote_1/rung
      wanted: with_rung_2
    out:
    - model
    - record
    - checkpoints
  promote_2:
    label: promote 2
    doc: Reduce several trainings to the best of trials, the trials that continue at a rung, or one model, their
      mean.
    run: choose.cwl
    when: $(inputs.wanted)
    in:
      mem_mb: choose_mem_mb
      timelimit_s: choose_timelimit_s
      reducer:
        default: halving
      models:
        source:
        - rung_2/model
        - trial_names
        pickValue: first_non_null
        valueFrom: $(self)
      count: rung_2_count
      previous: promote_1/rung
      rung_name: rung_2_name
      wanted: with_rung_2
    out:
    - model
    - leaderboard
    - page
    - rung
    - record
  trials:
    label: trials
    doc: Trials of the training, each mapped on the validation places; scatter over the trials.
    run: training.cwl
    scatter:
    - name
    - settings
    - continued
    scatterMethod: dotproduct
    in:
      kind:
        default: trial
      name: trial_names
      settings: trial_settings
      places:
        default: val
      continued:
        source:
        - rung_2/model
        - trial_names
        pickValue: first_non_null
        valueFrom: $(self)
      promoted: promote_2/rung
      chips: split/chips
      statistics: split/statistics
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
      labels:
        source:
        - label/labels
        - label_scenes/labels
        linkMerge: merge_flattened
        pickValue: all_non_null
      mosaic: steps/mosaic
      images: steps/images
      cells: cells/cells
      endings: cells/endings
      image_stores:
        source:
        - images/image_stores
        linkMerge: merge_flattened
        pickValue: all_non_null
      image_cells:
        source:
        - images/image_cells
        linkMerge: merge_flattened
        pickValue: all_non_null
      image_endings:
        source:
        - images/image_endings
        linkMerge: merge_flattened
        pickValue: all_non_null
      train_init: train_init
      train_model_files: train_model_files
      train_task: train_task
      train_min_share: train_min_share
      train_architecture: train_architecture
      train_width: train_width
      train_depth: train_depth
      train_arguments: train_arguments
      train_weights_bands: train_weights_bands
      train_weights_mean: train_weights_mean
      train_weights_std: train_weights_std
      train_weights_scale: train_weights_scale
      train_freeze: train_freeze
      train_lora: train_lora
      train_steps: train_steps
      train_epochs: train_epochs
      train_batch: train_batch
      train_crop: train_crop
      train_averaged_with: train_averaged_with
      train_max_pixels: train_max_pixels
      train_learning_rate: train_learning_rate
      train_head_learning_rate: train_head_learning_rate
      train_schedule: train_schedule
      train_weight_decay: train_weight_decay
      train_warmup: train_warmup
      train_loss: train_loss
      train_class_weights: train_class_weights
      train_ema: train_ema
      train_patience: train_patience
      train_augment: train_augment
      train_shuffle: train_shuffle
      train_window: train_window
      train_block: train_block
      train_precision: train_precision
      train_seed: train_seed
      train_processes: train_processes
      train_nodes: train_nodes
      train_threads: train_threads
      train_deterministic: train_deterministic
      train_shards: train_shards
      train_strategy: train_strategy
      train_accumulate: train_accumulate
      train_clip: train_clip
      train_compile: train_compile
      train_channels_last: train_channels_last
      train_recompute: train_recompute
      train_device: train_device
      train_checkpoint_every: train_checkpoint_every
      train_keep: train_keep
      train_cache_mb: train_cache_mb
      train_workers: train_workers
      train_timeout_s: train_timeout_s
      train_restarts: train_restarts
      train_scratch: train_scratch
      train_track: train_track
      train_profile: train_profile
      train_tell_every_s: train_tell_every_s
      train_mem_mb: train_mem_mb
      train_timelimit_s: train_timelimit_s
      predict_allow: predict_allow
      predict_halo: predict_halo
      predict_window: predict_window
      predict_symmetries: predict_symmetries
      predict_device: predict_device
      predict_threads: predict_threads
      predict_mem_mb: predict_mem_mb
      predict_timelimit_s: predict_timelimit_s
      report_colors: report_colors
    out:
    - model
    - classes
    - train_record
    - predict_record
    - predict_images_record
  members:
    label: members
    doc: Members of an ensemble, each mapped on the test places; scatter over the members.
    run: training.cwl
    scatter:
    - name
    - settings
    scatterMethod: dotproduct
    in:
      kind:
        default: member
      name: member_names
      settings: member_settings
      places:
        default: test
      continued:
        default: null
      promoted:
        default: null
      chips: split/chips
      statistics: split/statistics
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
      labels:
        source:
        - label/labels
        - label_scenes/labels
        linkMerge: merge_flattened
        pickValue: all_non_null
      mosaic: steps/mosaic
      images: steps/images
      cells: cells/cells
      endings: cells/endings
      image_stores:
        source:
        - images/image_stores
        linkMerge: merge_flattened
        pickValue: all_non_null
      image_cells:
        source:
        - images/image_cells
        linkMerge: merge_flattened
        pickValue: all_non_null
      image_endings:
        source:
        - images/image_endings
        linkMerge: merge_flattened
        pickValue: all_non_null
      train_init: train_init
      train_model_files: train_model_files
      train_task: train_task
      train_min_share: train_min_share
      train_architecture: train_architecture
      train_width: train_width
      train_depth: train_depth
      train_arguments: train_arguments
      train_weights_bands: train_weights_bands
      train_weights_mean: train_weights_mean
      train_weights_std: train_weights_std
      train_weights_scale: train_weights_scale
      train_freeze: train_freeze
      train_lora: train_lora
      train_steps: train_steps
      train_epochs: train_epochs
      train_batch: train_batch
      train_crop: train_crop
      train_averaged_with: train_averaged_with
      train_max_pixels: train_max_pixels
      train_learning_rate: train_learning_rate
      train_head_learning_rate: train_head_learning_rate
      train_schedule: train_schedule
      train_weight_decay: train_weight_decay
      train_warmup: train_warmup
      train_loss: train_loss
      train_class_weights: train_class_weights
      train_ema: train_ema
      train_patience: train_patience
      train_augment: train_augment
      train_shuffle: train_shuffle
      train_window: train_window
      train_block: train_block
      train_precision: train_precision
      train_seed: train_seed
      train_processes: train_processes
      train_nodes: train_nodes
      train_threads: train_threads
      train_deterministic: train_deterministic
      train_shards: train_shards
      train_strategy: train_strategy
      train_accumulate: train_accumulate
      train_clip: train_clip
      train_compile: train_compile
      train_channels_last: train_channels_last
      train_recompute: train_recompute
      train_device: train_device
      train_checkpoint_every: train_checkpoint_every
      train_keep: train_keep
      train_cache_mb: train_cache_mb
      train_workers: train_workers
      train_timeout_s: train_timeout_s
      train_restarts: train_restarts
      train_scratch: train_scratch
      train_track: train_track
      train_profile: train_profile
      train_tell_every_s: train_tell_every_s
      train_mem_mb: train_mem_mb
      train_timelimit_s: train_timelimit_s
      predict_allow: predict_allow
      predict_halo: predict_halo
      predict_window: predict_window
      predict_symmetries: predict_symmetries
      predict_device: predict_device
      predict_threads: predict_threads
      predict_mem_mb: predict_mem_mb
      predict_timelimit_s: predict_timelimit_s
      report_colors: report_colors
    out:
    - model
    - classes
    - train_record
    - predict_record
    - predict_images_record
  choose:
    label: choose
    doc: Reduce several trainings to the best of trials, the trials that continue at a rung, or one model, their
      mean.
    run: choose.cwl
    when: $(inputs.wanted)
    in:
      score: choose_score
      mem_mb: choose_mem_mb
      timelimit_s: choose_timelimit_s
      classes: trials/classes
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
      labels:
        source:
        - label/labels
        - label_scenes/labels
        linkMerge: merge_flattened
        pickValue: all_non_null
      chips: split/chips
      models: trials/model
      model_name:
        default: model
      leaderboard_name:
        default: trials.json
      page_name:
        default: trials.html
      rungs:
        source:
        - promote_0/rung
        - promote_1/rung
        - promote_2/rung
        linkMerge: merge_flattened
        pickValue: all_non_null
        valueFrom: $(self)
      wanted: with_trials
    out:
    - model
    - leaderboard
    - page
    - rung
    - record
  combine:
    label: combine
    doc: Reduce several trainings to the best of trials, the trials that continue at a rung, or one model, their
      mean.
    run: choose.cwl
    when: $(inputs.wanted)
    in:
      mem_mb: choose_mem_mb
      timelimit_s: choose_timelimit_s
      reducer:
        default: mean
      models: members/model
      model_name:
        default: model
      wanted: with_members
    out:
    - model
    - leaderboard
    - page
    - rung
    - record
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
        - choose/model
        - combine/model
        linkMerge: merge_nested
        pickValue: the_only_non_null
        valueFrom: $(self)
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
      labels:
        source:
        - label/labels
        - label_scenes/labels
        linkMerge: merge_flattened
        pickValue: all_non_null
      chips: split/chips
    out:
    - calibration
    - record
  predict_parts:
    label: predict parts
    doc: Predict a seamless map of classes and their probabilities, or of values, window by window.
    run: predict.cwl
    scatter:
    - cell
    - ending
    - part
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
        - choose/model
        - combine/model
        linkMerge: merge_nested
        pickValue: the_only_non_null
        valueFrom: $(self)
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
      calibration: calibrate/calibration
      wanted: steps/mosaic
      cell: cells/part_cells
      ending: cells/part_endings
      classes_name:
        valueFrom: classes$(inputs.ending).tif
      probabilities_name:
        valueFrom: probabilities$(inputs.ending).tif
      part: cells/parts
    out:
    - classes
    - probabilities
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
        - choose/model
        - combine/model
        linkMerge: merge_nested
        pickValue: the_only_non_null
        valueFrom: $(self)
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
      calibration: calibrate/calibration
      wanted: steps/mosaic
      cell: cells/cells
      ending: cells/endings
      classes_name:
        valueFrom: classes$(inputs.ending).tif
      probabilities_name:
        valueFrom: probabilities$(inputs.ending).tif
      finished_parts:
        source:
        - predict_parts/classes
        - predict_parts/probabilities
        linkMerge: merge_flattened
        pickValue: all_non_null
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
      image:
        source:
        - images/image_stores
        linkMerge: merge_flattened
        pickValue: all_non_null
      cell:
        source:
        - images/image_cells
        linkMerge: merge_flattened
        pickValue: all_non_null
      ending:
        source:
        - images/image_endings
        linkMerge: merge_flattened
        pickValue: all_non_null
      model:
        source:
        - train/model
        - choose/model
        - combine/model
        linkMerge: merge_nested
        pickValue: the_only_non_null
        valueFrom: $(self)
      calibration: calibrate/calibration
      wanted: steps/images
      classes_name:
        valueFrom: classes-$(inputs.image.basename)$(inputs.ending).tif
      probabilities_name:
        valueFrom: probabilities-$(inputs.image.basename)$(inputs.ending).tif
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
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
      labels:
        source:
        - label/labels
        - label_scenes/labels
        linkMerge: merge_flattened
        pickValue: all_non_null
      chips: split/chips
      probabilities:
        source:
        - predict/probabilities
        - predict_images/probabilities
        linkMerge: merge_flattened
        pickValue: all_non_null
      member_maps: members/classes
    out:
    - metrics
    - record
  cross_validate:
    label: cross-validate
    doc: Cross-validation; scatter over the folds.
    run: fold.cwl
    scatter: fold
    in:
      fold: fold
      folds: folds
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
      labels:
        source:
        - label/labels
        - label_scenes/labels
        linkMerge: merge_flattened
        pickValue: all_non_null
      mosaic: steps/mosaic
      images: steps/images
      cells: cells/cells
      endings: cells/endings
      image_stores:
        source:
        - images/image_stores
        linkMerge: merge_flattened
        pickValue: all_non_null
      image_cells:
        source:
        - images/image_cells
        linkMerge: merge_flattened
        pickValue: all_non_null
      image_endings:
        source:
        - images/image_endings
        linkMerge: merge_flattened
        pickValue: all_non_null
      split_chip: split_chip
      split_stride: split_stride
      split_method: split_method
      split_fractions: split_fractions
      split_block: split_block
      split_buffer: split_buffer
      split_dates: split_dates
      split_by: split_by
      split_val_groups: split_val_groups
      split_test_groups: split_test_groups
      split_regions: split_regions
      split_attribute: split_attribute
      split_block_km: split_block_km
      split_min_valid: split_min_valid
      split_seed: split_seed
      split_allow: split_allow
      split_mem_mb: split_mem_mb
      split_timelimit_s: split_timelimit_s
      train_init: train_init
      train_model_files: train_model_files
      train_task: train_task
      train_min_share: train_min_share
      train_architecture: train_architecture
      train_width: train_width
      train_depth: train_depth
      train_arguments: train_arguments
      train_weights_bands: train_weights_bands
      train_weights_mean: train_weights_mean
      train_weights_std: train_weights_std
      train_weights_scale: train_weights_scale
      train_freeze: train_freeze
      train_lora: train_lora
      train_steps: train_steps
      train_epochs: train_epochs
      train_batch: train_batch
      train_crop: train_crop
      train_averaged_with: train_averaged_with
      train_max_pixels: train_max_pixels
      train_learning_rate: train_learning_rate
      train_head_learning_rate: train_head_learning_rate
      train_schedule: train_schedule
      train_weight_decay: train_weight_decay
      train_warmup: train_warmup
      train_loss: train_loss
      train_class_weights: train_class_weights
      train_ema: train_ema
      train_patience: train_patience
      train_augment: train_augment
      train_shuffle: train_shuffle
      train_window: train_window
      train_block: train_block
      train_precision: train_precision
      train_seed: train_seed
      train_processes: train_processes
      train_nodes: train_nodes
      train_threads: train_threads
      train_deterministic: train_deterministic
      train_shards: train_shards
      train_strategy: train_strategy
      train_accumulate: train_accumulate
      train_clip: train_clip
      train_compile: train_compile
      train_channels_last: train_channels_last
      train_recompute: train_recompute
      train_device: train_device
      train_checkpoint_every: train_checkpoint_every
      train_keep: train_keep
      train_cache_mb: train_cache_mb
      train_workers: train_workers
      train_timeout_s: train_timeout_s
      train_restarts: train_restarts
      train_scratch: train_scratch
      train_track: train_track
      train_profile: train_profile
      train_tell_every_s: train_tell_every_s
      train_mem_mb: train_mem_mb
      train_timelimit_s: train_timelimit_s
      calibrate_mem_mb: calibrate_mem_mb
      calibrate_timelimit_s: calibrate_timelimit_s
      predict_allow: predict_allow
      predict_halo: predict_halo
      predict_window: predict_window
      predict_symmetries: predict_symmetries
      predict_device: predict_device
      predict_threads: predict_threads
      predict_mem_mb: predict_mem_mb
      predict_timelimit_s: predict_timelimit_s
      evaluate_mem_mb: evaluate_mem_mb
      evaluate_timelimit_s: evaluate_timelimit_s
      report_colors: report_colors
    out:
    - metrics
    - model
    - split_record
    - train_record
    - calibrate_record
    - predict_record
    - predict_images_record
    - evaluate_record
  estimate:
    label: estimate
    doc: Estimate the area of each class in hectares from a labelled probability sample, and the accuracy of the
      map.
    run: estimate.cwl
    when: $(inputs.wanted)
    in:
      sample: evaluate_sample
      sample_design: evaluate_sample_design
      label_column: evaluate_label_column
      mem_mb: estimate_mem_mb
      timelimit_s: estimate_timelimit_s
      classes:
        source:
        - predict/classes
        - predict_images/classes
        linkMerge: merge_flattened
        pickValue: all_non_null
      wanted: with_areas
    out:
    - areas
    - page
    - record
  export:
    label: export
    doc: Export the model to ONNX and compare its output with the original on real chips.
    run: export.cwl
    when: $(inputs.wanted)
    in:
      allow_code: train_architecture
      mem_mb: export_mem_mb
      timelimit_s: export_timelimit_s
      model:
        source:
        - train/model
        - choose/model
        - combine/model
        linkMerge: merge_nested
        pickValue: the_only_non_null
        valueFrom: $(self)
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
        valueFrom: $(self[0])
      wanted: with_onnx
    out:
    - onnx
    - check
    - record
  report:
    label: report
    doc: Write the report of a run (scores, maps, training, data, provenance), a map sheet, a model card and a data
      card.
    run: report.cwl
    when: $(inputs.wanted)
    in:
      title: report_title
      attribution: report_attribution
      use: report_use
      limits: report_limits
      author: report_author
      colors: report_colors
      license: crate_license
      mem_mb: report_mem_mb
      timelimit_s: report_timelimit_s
      model:
        source:
        - train/model
        - choose/model
        - combine/model
        linkMerge: merge_nested
        pickValue: the_only_non_null
        valueFrom: $(self)
      classes:
        source:
        - predict/classes
        - predict_images/classes
        linkMerge: merge_flattened
        pickValue: all_non_null
      probabilities:
        source:
        - predict/probabilities
        - predict_images/probabilities
        linkMerge: merge_flattened
        pickValue: all_non_null
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
      metrics: evaluate/metrics
      chips: split/chips
      labels:
        source:
        - label/labels
        - label_scenes/labels
        linkMerge: merge_flattened
        pickValue: all_non_null
      scenes: search/items_each
      fold_metrics: cross_validate/metrics
      areas: estimate/areas
      model_card_name:
        default: model-card.md
      data_card_name:
        default: data-card.md
      wanted: with_report
    out:
    - page
    - picture
    - model_card
    - data_card
    - status
    - record
  products:
    label: products
    doc: Make polygons, a QGIS style, the entropy and a table of zones from the finished maps of a run.
    run: products.cwl
    when: $(inputs.wanted)
    in:
      zones: products_zones
      zone_name: products_zone_name
      zone_layer: products_zone_layer
      minimum_mapping_unit_ha: products_minimum_mapping_unit_ha
      mem_mb: products_mem_mb
      timelimit_s: products_timelimit_s
      classes:
        source:
        - predict/classes
        - predict_images/classes
        linkMerge: merge_flattened
        pickValue: all_non_null
      probabilities:
        source:
        - predict/probabilities
        - predict_images/probabilities
        linkMerge: merge_flattened
        pickValue: all_non_null
      wanted: with_products
    out:
    - products
    - record
  publish:
    label: publish
    doc: Export model, maps and tiles as a self-contained STAC catalog.
    run: catalog.cwl
    in:
      require: evaluate_require
      title: report_title
      license: crate_license
      mem_mb: catalog_mem_mb
      timelimit_s: catalog_timelimit_s
      model:
        source:
        - train/model
        - choose/model
        - combine/model
        linkMerge: merge_nested
        pickValue: the_only_non_null
        valueFrom: $(self)
      classes:
        source:
        - predict/classes
        - predict_images/classes
        linkMerge: merge_flattened
        pickValue: all_non_null
      probabilities:
        source:
        - predict/probabilities
        - predict_images/probabilities
        linkMerge: merge_flattened
        pickValue: all_non_null
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
      scenes: search/items_each
      metrics: evaluate/metrics
      onnx: export/onnx
      areas: estimate/areas
    out:
    - catalog
    - record
  crate:
    label: crate
    doc: Package a run as an RO-Crate, with the provenance of every result.
    run: crate.cwl
    when: $(inputs.wanted)
    in:
      description: crate_description
      license: crate_license
      author: crate_author
      orcid: crate_orcid
      organization: crate_organization
      ror: crate_ror
      coauthors: crate_coauthors
      funding: crate_funding
      title: report_title
      mem_mb: crate_mem_mb
      timelimit_s: crate_timelimit_s
      scenes: search/items_each
      records:
        source:
        - search/record
        - fetch/record
        - preprocess/record
        - composite/record
        - label/record
        - label_scenes/record
        - split/record
        - train/record
        - rung_0/record
        - promote_0/record
        - rung_1/record
        - promote_1/record
        - rung_2/record
        - promote_2/record
        - trials/train_record
        - trials/predict_record
        - trials/predict_images_record
        - members/train_record
        - members/predict_record
        - members/predict_images_record
        - choose/record
        - combine/record
        - calibrate/record
        - predict_parts/record
        - predict/record
        - predict_images/record
        - evaluate/record
        - cross_validate/split_record
        - cross_validate/train_record
        - cross_validate/calibrate_record
        - cross_validate/predict_record
        - cross_validate/predict_images_record
        - cross_validate/evaluate_record
        - estimate/record
        - export/record
        - report/record
        - products/record
        - publish/record
        linkMerge: merge_flattened
        pickValue: all_non_null
      payload:
        source:
        - search/grid
        - search/selection
        - split/chips
        - split/statistics
        - split/map
        - split/outlines
        - evaluate/metrics
        - export/onnx
        - export/check
        - estimate/areas
        - estimate/page
        - evaluate_sample
        - evaluate_sample_design
        - report/page
        - report/picture
        - report/model_card
        - report/data_card
        - train/model
        - calibrate/calibration
        - predict/classes
        - predict_images/classes
        - predict/probabilities
        - predict_images/probabilities
        - cross_validate/metrics
        - cross_validate/model
        - trials/model
        - members/model
        - combine/model
        - choose/model
        - choose/leaderboard
        - choose/page
        - promote_0/rung
        - promote_1/rung
        - promote_2/rung
        linkMerge: merge_flattened
        pickValue: all_non_null
        valueFrom: $(self)
      workflow: workflow
      config: config
      lock: lock
      engine:
        default: cwl
      wanted: with_crate
    out:
    - crate
    - record
outputs:
  grid:
    type: File
    label: grid
    doc: grid of the run
    format: iana:application/json
    outputSource: search/grid
  selection:
    type: File
    label: selection
    doc: selected scenes, and the excluded ones with the reason
    format: iana:application/json
    outputSource: search/selection
  tiles:
    type:
      type: array
      items: Directory
    label: tiles
    doc: one Zarr store per scene
    outputSource: preprocess/tiles
  composites:
    type:
    - 'null'
    - type: array
      items: Directory
    label: composites
    doc: one Zarr store per period
    outputSource: composite/images
  labels:
    type:
      type: array
      items: Directory
    label: labels
    doc: label store of all scenes, or one per scene
    outputSource:
    - label/labels
    - label_scenes/labels
    linkMerge: merge_flattened
    pickValue: all_non_null
  chips:
    type: File
    label: chips
    doc: samples of each split
    format: iana:application/json
    outputSource: split/chips
  statistics:
    type: File
    label: statistics
    doc: band statistics of the training chips
    format: iana:application/json
    outputSource: split/statistics
  split_map:
    type: File
    label: split map
    doc: map of the splits
    format: iana:image/png
    outputSource: split/map
  split_outlines:
    type: File
    label: split outlines
    doc: chips as polygons
    format: iana:application/geopackage+sqlite3
    outputSource: split/outlines
  model:
    type:
    - 'null'
    - Directory
    label: model
    doc: trained model
    outputSource: train/model
  chosen_model:
    type:
    - 'null'
    - Directory
    label: chosen model
    doc: model of the best trial
    outputSource: choose/model
  leaderboard:
    type:
    - 'null'
    - File
    label: leaderboard
    doc: scores of the trials on the validation places
    format: iana:application/json
    outputSource: choose/leaderboard
  trials_page:
    type:
    - 'null'
    - File
    label: trials page
    doc: the trials as one HTML page
    format: iana:text/html
    outputSource: choose/page
  ensemble:
    type:
    - 'null'
    - Directory
    label: ensemble
    doc: model of the members of an ensemble
    outputSource: combine/model
  trial_models:
    type:
      type: array
      items:
      - 'null'
      - Directory
    label: trial models
    doc: trained model of each trial
    outputSource: trials/model
  member_models:
    type:
      type: array
      items:
      - 'null'
      - Directory
    label: member models
    doc: trained model of each member of an ensemble
    outputSource: members/model
  train_checkpoints:
    type:
    - 'null'
    - Directory
    label: train checkpoints
    doc: checkpoints of a training that did not end
    outputSource: train/checkpoints
  calibration:
    type: File
    label: calibration
    doc: temperature of the probabilities
    format: iana:application/json
    outputSource: calibrate/calibration
  onnx:
    type:
    - 'null'
    - File
    label: onnx
    doc: the model in ONNX format
    format: edam:format_2333
    outputSource: export/onnx
  classes:
    type:
      type: array
      items: File
    label: classes
    doc: map of classes, of all images or one of each
    format: iana:image/tiff
    outputSource:
    - predict/classes
    - predict_images/classes
    linkMerge: merge_flattened
    pickValue: all_non_null
  probabilities:
    type:
      type: array
      items: File
    label: probabilities
    doc: map of probabilities, of all images or one of each
    format: iana:image/tiff
    outputSource:
    - predict/probabilities
    - predict_images/probabilities
    linkMerge: merge_flattened
    pickValue: all_non_null
  metrics:
    type: File
    label: metrics
    doc: scores of the maps in the test areas
    format: iana:application/json
    outputSource: evaluate/metrics
  areas:
    type:
    - 'null'
    - File
    label: areas
    doc: areas with standard errors, from a labelled sample
    format: iana:application/json
    outputSource: estimate/areas
  areas_page:
    type:
    - 'null'
    - File
    label: areas page
    doc: the same as one HTML page
    format: iana:text/html
    outputSource: estimate/page
  page:
    type:
    - 'null'
    - File
    label: page
    doc: the report as one HTML page
    format: iana:text/html
    outputSource: report/page
  picture:
    type:
    - 'null'
    - File
    label: picture
    doc: the map as a PNG image
    format: iana:image/png
    outputSource: report/picture
  model_card:
    type:
    - 'null'
    - File
    label: model card
    doc: model card in Markdown
    format: iana:text/markdown
    outputSource: report/model_card
  data_card:
    type:
    - 'null'
    - File
    label: data card
    doc: data card in Markdown
    format: iana:text/markdown
    outputSource: report/data_card
  products:
    type:
    - 'null'
    - Directory
    label: products
    doc: polygons, QGIS style and areas of zones
    outputSource: products/products
  stac:
    type: Directory
    label: stac
    doc: STAC catalog of model, maps and tiles
    outputSource: publish/catalog
  run_crate:
    type:
    - 'null'
    - Directory
    label: run crate
    doc: Provenance Run Crate
    outputSource: crate/crate
  fold_metrics:
    type:
      type: array
      items: File
    label: fold metrics
    doc: scores of each fold
    format: iana:application/json
    outputSource: cross_validate/metrics
  fold_models:
    type:
      type: array
      items:
      - 'null'
      - Directory
    label: fold models
    doc: trained model of each fold
    outputSource: cross_validate/model
