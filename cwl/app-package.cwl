# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
s:name: eopipe
s:description: 'Satellite scenes to a trained, measured and mapped model: train one, or map with one.'
s:softwareVersion: 0.1.0
s:codeRepository: https://github.com/eopipe/eopipe
s:license: https://spdx.org/licenses/Apache-2.0
s:dateCreated: '2026-11-21'
s:keywords:
- earth observation
- machine learning
- STAC
- segmentation
s:softwareHelp:
  class: s:CreativeWork
  s:name: Documentation of eopipe
  s:url: https://github.com/eopipe/eopipe/tree/main/docs
s:publisher:
  class: s:Organization
  s:name: The eopipe team
  s:email: team@example.org
  s:url: https://github.com/eopipe/eopipe
s:author:
- class: s:Person
  s:givenName: eopipe
  s:familyName: team
  s:email: team@example.org
  s:affiliation:
    class: s:Organization
    s:name: The eopipe team
    s:email: team@example.org
    s:url: https://github.com/eopipe/eopipe
$graph:
- class: Workflow
  id: eopipe-train
  label: Train a model and map with it
  doc: Scenes of a staged STAC catalog and a file of labels to a trained and measured model, its map and its tiles,
    as a STAC catalog.
  requirements:
    MultipleInputFeatureRequirement: {}
    ScatterFeatureRequirement: {}
    StepInputExpressionRequirement: {}
    SubworkflowFeatureRequirement: {}
  inputs:
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
      doc: 'CRS of the grid as EPSG:code; auto: the one of the scenes, or the UTM zone of the area; utm: cells,
        one for each UTM zone and distant part of the area'
      default: auto
    search_resolution:
      type:
      - 'null'
      - double
      label: search.resolution
      doc: 'pixel size of the grid in units of the CRS (default: the finest of grid_assets)'
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
    fetch_per_host:
      type: int
      label: fetch.per_host
      doc: maximum parallel connections to one host
      default: 8
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
      doc: 'offset of reflectance where neither item nor product state it: -0.1 for Sentinel-2 since processing
        baseline 04.00, 0 before or where it was removed'
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
    preprocess_max_files:
      type:
      - 'null'
      - int
      label: preprocess.max_files
      doc: 'file budget: refuse a store that would need more files'
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
      doc: 'change: raster or vector file with the labels of an earlier date, in the same classes; labels become
        from-to classes'
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
      doc: 'date or interval, as in search.datetime, of the features of a vector file that count: by its column
        date, or start_date and end_date'
    label_overlap:
      type: string
      label: label.overlap
      doc: 'where shapes of different labels overlap: unlabelled, or last or first in the file (invalid or last
        or first)'
      default: invalid
    label_all_touched:
      type: boolean
      label: label.all_touched
      doc: rasterise shapes to all pixels they touch, not only to contained centres
      default: false
    label_resampling:
      type: string
      label: label.resampling
      doc: 'resampling of label rasters: nearest or mode for classes; nearest, bilinear, cubic or average for a
        measure and before bins; auto: average if such a raster is finer than the grid, else nearest (auto or nearest
        or mode or bilinear or cubic or average)'
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
        a polygon of the labels, whose pixels are masked in the chips of other splits, a column of the index of
        a chip set (scene or tile or region or polygon or column)'
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
      type: double
      label: split.min_valid
      doc: minimum fraction of valid, labelled pixels in a chip
      default: 0.5
    split_min_scene_valid:
      type: double
      label: split.min_scene_valid
      doc: minimum valid fraction of a scene; scenes below it are excluded
      default: 0.0
    split_seed:
      type: int
      label: split.seed
      doc: seed of random assignments
      default: 0
    split_similarity:
      type: double
      label: split.similarity
      doc: correlation after alignment at or above which chips of two splits are near duplicates
      default: 0.97
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
        or the value of each pixel (segmentation or classification or multilabel or regression)'
      default: segmentation
    train_min_share:
      type: double
      label: train.min_share
      doc: minimum share of the labelled pixels of a chip that a class needs to be one of its labels, for task multilabel
      default: 0.05
    train_architecture:
      type: string
      label: train.architecture
      doc: 'model architecture: unet, convnext, temporal, linear, or a class of your own or of a library as module:Class
        or file.py:Class'
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
      doc: 'bands of pretrained weights of a custom model, in their order, e.g. red green blue: its first layer
        is changed to the bands of the run by name'
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
      doc: 'number of training steps (default: 200 to 750, by the labelled pixels of the training; where a chip
        has one label 200, or 10 passes over the chips)'
    train_epochs:
      type:
      - 'null'
      - int
      label: train.epochs
      doc: number of epochs, passes over the training chips; in place of steps
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
        and lovasz are means over chips, not pixels (cross_entropy or focal or dice or lovasz or huber or mse or
        binary_cross_entropy or binary_focal)'
    train_class_weights:
      type:
      - 'null'
      - string
      label: train.class_weights
      doc: 'class weights in cross_entropy and focal: the inverse frequency to a power, of 1 for balanced (the same
        total weight for every class), 1/2 for sqrt, 1/4 for fourth_root (default where the loss takes weights);
        for multilabel, weights of the chips with a class against those without it (none or fourth_root or sqrt
        or balanced)'
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
    predict_allow:
      type:
        type: array
        items: string
      label: predict.allow
      doc: 'accepted differences of the tiles from the training tiles, each as ''kind: reason'', with a kind of
        pixel-size, unit, level'
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
    evaluate_baseline_pixels:
      type: int
      label: evaluate.baseline_pixels
      doc: maximum number of training pixels of each fit of the tree baselines
      default: 100000
    evaluate_seed:
      type: int
      label: evaluate.seed
      doc: 'random seed of the tree baselines: their samples of pixels and their fits'
      default: 0
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
    export_opset:
      type: int
      label: export.opset
      doc: version of the ONNX operator set
      default: 18
    export_tolerance:
      type: double
      label: export.tolerance
      doc: maximum difference of a probability, or of a value in standard deviations of the labels
      default: 0.0001
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
    report_colors:
      type:
        type: array
        items: string
      label: report.colors
      doc: 'colour of each class as #rrggbb; a colour-blind-safe palette if not given'
      default: []
    catalog_title:
      type: string
      label: catalog.title
      doc: title of the catalog
      default: eopipe run
    catalog_description:
      type: string
      label: catalog.description
      doc: description of the catalog
      default: Model, maps and tiles that eopipe made from satellite scenes.
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
    crate_license:
      type: string
      label: crate.license
      doc: 'licence of crate, model, maps and tiles: SPDX identifier such as CC-BY-4.0, or URL; without it crate,
        cards and catalog say that none is stated'
      default: ''
    with_onnx:
      type: boolean
      label: with ONNX
      doc: export the model to ONNX
      default: true
    catalog:
      type: Directory
      label: scenes
      doc: STAC catalog of scenes, staged in by the platform
  outputs:
    stac:
      type: Directory
      label: STAC catalog
      doc: model, maps and tiles
      outputSource: publish/catalog
  steps:
    search:
      label: search
      doc: Find scenes in a STAC catalog or API and freeze the list and the grid.
      run: '#stage-search'
      in:
        catalog: catalog
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
          valueFrom: $(self)
          source: preprocess_bands
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
      run: '#stage-cells'
      in:
        grid: search/grid
      out:
      - cells
      - endings
      - parts
      - part_cells
      - part_endings
    fetch:
      label: fetch
      doc: Fetch the assets of one scene and verify size and checksum.
      run: '#stage-fetch'
      scatter: item
      in:
        windows: fetch_windows
        workers: fetch_workers
        per_host: fetch_per_host
        deadline: fetch_deadline
        sign: fetch_sign
        private_hosts: fetch_private_hosts
        mem_mb: fetch_mem_mb
        timelimit_s: fetch_timelimit_s
        catalog: catalog
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
      run: '#stage-preprocess'
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
        max_files: preprocess_max_files
        mem_mb: preprocess_mem_mb
        timelimit_s: preprocess_timelimit_s
        scene: fetch/scene
        grid: search/grid
        tiles_name:
          valueFrom: $(inputs.scene.basename).zarr
      out:
      - tiles
      - record
    label:
      label: label
      doc: Put labels onto the grid, as class numbers or as values of a quantity, with their valid mask.
      run: '#stage-label'
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
        wanted:
          default: true
      out:
      - labels
      - record
    split:
      label: split
      doc: Cut the grid into chips, assign them to splits by place, date or group, and audit the splits for leakage.
      run: '#stage-split'
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
        min_scene_valid: split_min_scene_valid
        seed: split_seed
        similarity: split_similarity
        allow: split_allow
        mem_mb: split_mem_mb
        timelimit_s: split_timelimit_s
        tiles: preprocess/tiles
        labels:
          source:
          - label/labels
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
      run: '#stage-train'
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
        tiles: preprocess/tiles
        labels:
          source:
          - label/labels
          linkMerge: merge_flattened
          pickValue: all_non_null
        chips: split/chips
        statistics: split/statistics
        wanted:
          default: true
      out:
      - model
      - record
      - checkpoints
      when: $(inputs.wanted)
    predict:
      label: predict
      doc: Predict a seamless map of classes and their probabilities, or of values, window by window.
      run: '#stage-predict'
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
        tiles: preprocess/tiles
        wanted:
          default: true
        cell: cells/cells
        ending: cells/endings
        classes_name:
          valueFrom: classes$(inputs.ending).tif
        probabilities_name:
          valueFrom: probabilities$(inputs.ending).tif
      out:
      - classes
      - probabilities
      - record
    evaluate:
      label: evaluate
      doc: Score the map against the labels in the test areas, beside the majority class and two baselines of trees.
      run: '#stage-evaluate'
      in:
        baseline_pixels: evaluate_baseline_pixels
        seed: evaluate_seed
        mem_mb: evaluate_mem_mb
        timelimit_s: evaluate_timelimit_s
        classes:
          source:
          - predict/classes
          linkMerge: merge_flattened
          pickValue: all_non_null
        tiles: preprocess/tiles
        labels:
          source:
          - label/labels
          linkMerge: merge_flattened
          pickValue: all_non_null
        chips: split/chips
        probabilities:
          source:
          - predict/probabilities
          linkMerge: merge_flattened
          pickValue: all_non_null
      out:
      - metrics
      - record
    export:
      label: export
      doc: Export the model to ONNX and compare its output with the original on real chips.
      run: '#stage-export'
      when: $(inputs.wanted)
      in:
        opset: export_opset
        tolerance: export_tolerance
        allow_code: train_architecture
        mem_mb: export_mem_mb
        timelimit_s: export_timelimit_s
        model:
          source:
          - train/model
          linkMerge: merge_nested
          pickValue: the_only_non_null
          valueFrom: $(self)
        tiles:
          valueFrom: $(self[0])
          source: preprocess/tiles
        wanted: with_onnx
      out:
      - onnx
      - check
      - record
    publish:
      label: publish
      doc: Export model, maps and tiles as a self-contained STAC catalog.
      run: '#stage-catalog'
      in:
        title: catalog_title
        description: catalog_description
        license: crate_license
        mem_mb: catalog_mem_mb
        timelimit_s: catalog_timelimit_s
        model:
          source:
          - train/model
          linkMerge: merge_nested
          pickValue: the_only_non_null
          valueFrom: $(self)
        classes:
          source:
          - predict/classes
          linkMerge: merge_flattened
          pickValue: all_non_null
        probabilities:
          source:
          - predict/probabilities
          linkMerge: merge_flattened
          pickValue: all_non_null
        tiles: preprocess/tiles
        scenes: search/items_each
        metrics: evaluate/metrics
        onnx: export/onnx
      out:
      - catalog
      - record
- class: Workflow
  id: eopipe-predict
  label: Map with a trained model
  doc: Scenes of a staged STAC catalog and a trained model to a map and its tiles, as a STAC catalog.
  requirements:
    MultipleInputFeatureRequirement: {}
    ScatterFeatureRequirement: {}
    StepInputExpressionRequirement: {}
    SubworkflowFeatureRequirement: {}
  inputs:
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
      doc: 'CRS of the grid as EPSG:code; auto: the one of the scenes, or the UTM zone of the area; utm: cells,
        one for each UTM zone and distant part of the area'
      default: auto
    search_resolution:
      type:
      - 'null'
      - double
      label: search.resolution
      doc: 'pixel size of the grid in units of the CRS (default: the finest of grid_assets)'
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
    fetch_per_host:
      type: int
      label: fetch.per_host
      doc: maximum parallel connections to one host
      default: 8
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
      doc: 'offset of reflectance where neither item nor product state it: -0.1 for Sentinel-2 since processing
        baseline 04.00, 0 before or where it was removed'
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
    preprocess_max_files:
      type:
      - 'null'
      - int
      label: preprocess.max_files
      doc: 'file budget: refuse a store that would need more files'
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
    train_architecture:
      type: string
      label: train.architecture
      doc: 'model architecture: unet, convnext, temporal, linear, or a class of your own or of a library as module:Class
        or file.py:Class'
      default: unet
    predict_allow:
      type:
        type: array
        items: string
      label: predict.allow
      doc: 'accepted differences of the tiles from the training tiles, each as ''kind: reason'', with a kind of
        pixel-size, unit, level'
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
    export_opset:
      type: int
      label: export.opset
      doc: version of the ONNX operator set
      default: 18
    export_tolerance:
      type: double
      label: export.tolerance
      doc: maximum difference of a probability, or of a value in standard deviations of the labels
      default: 0.0001
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
    report_colors:
      type:
        type: array
        items: string
      label: report.colors
      doc: 'colour of each class as #rrggbb; a colour-blind-safe palette if not given'
      default: []
    catalog_title:
      type: string
      label: catalog.title
      doc: title of the catalog
      default: eopipe run
    catalog_description:
      type: string
      label: catalog.description
      doc: description of the catalog
      default: Model, maps and tiles that eopipe made from satellite scenes.
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
    crate_license:
      type: string
      label: crate.license
      doc: 'licence of crate, model, maps and tiles: SPDX identifier such as CC-BY-4.0, or URL; without it crate,
        cards and catalog say that none is stated'
      default: ''
    with_onnx:
      type: boolean
      label: with ONNX
      doc: export the model to ONNX
      default: true
    catalog:
      type: Directory
      label: scenes
      doc: STAC catalog of scenes, staged in by the platform
    model:
      type: Directory
      label: model
      doc: STAC catalog with the trained model, as the package eopipe-train makes it, or the folder of a model
  outputs:
    stac:
      type: Directory
      label: STAC catalog
      doc: model, maps and tiles
      outputSource: publish/catalog
  steps:
    search:
      label: search
      doc: Find scenes in a STAC catalog or API and freeze the list and the grid.
      run: '#stage-search'
      in:
        catalog: catalog
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
          valueFrom: $(self)
          source: preprocess_bands
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
      run: '#stage-cells'
      in:
        grid: search/grid
      out:
      - cells
      - endings
      - parts
      - part_cells
      - part_endings
    fetch:
      label: fetch
      doc: Fetch the assets of one scene and verify size and checksum.
      run: '#stage-fetch'
      scatter: item
      in:
        windows: fetch_windows
        workers: fetch_workers
        per_host: fetch_per_host
        deadline: fetch_deadline
        sign: fetch_sign
        private_hosts: fetch_private_hosts
        mem_mb: fetch_mem_mb
        timelimit_s: fetch_timelimit_s
        catalog: catalog
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
      run: '#stage-preprocess'
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
        max_files: preprocess_max_files
        mem_mb: preprocess_mem_mb
        timelimit_s: preprocess_timelimit_s
        scene: fetch/scene
        grid: search/grid
        tiles_name:
          valueFrom: $(inputs.scene.basename).zarr
      out:
      - tiles
      - record
    predict:
      label: predict
      doc: Predict a seamless map of classes and their probabilities, or of values, window by window.
      run: '#stage-predict'
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
        mem_mb: predict_mem_mb
        timelimit_s: predict_timelimit_s
        model:
          source:
          - model
          linkMerge: merge_nested
          pickValue: the_only_non_null
          valueFrom: $(self)
        tiles: preprocess/tiles
        wanted:
          default: true
        cell: cells/cells
        ending: cells/endings
        classes_name:
          valueFrom: classes$(inputs.ending).tif
        probabilities_name:
          valueFrom: probabilities$(inputs.ending).tif
      out:
      - classes
      - probabilities
      - record
    export:
      label: export
      doc: Export the model to ONNX and compare its output with the original on real chips.
      run: '#stage-export'
      when: $(inputs.wanted)
      in:
        opset: export_opset
        tolerance: export_tolerance
        allow_code: train_architecture
        mem_mb: export_mem_mb
        timelimit_s: export_timelimit_s
        model:
          source:
          - model
          linkMerge: merge_nested
          pickValue: the_only_non_null
          valueFrom: $(self)
        tiles:
          valueFrom: $(self[0])
          source: preprocess/tiles
        wanted: with_onnx
      out:
      - onnx
      - check
      - record
    publish:
      label: publish
      doc: Export model, maps and tiles as a self-contained STAC catalog.
      run: '#stage-catalog'
      in:
        title: catalog_title
        description: catalog_description
        license: crate_license
        mem_mb: catalog_mem_mb
        timelimit_s: catalog_timelimit_s
        model:
          source:
          - model
          linkMerge: merge_nested
          pickValue: the_only_non_null
          valueFrom: $(self)
        classes:
          source:
          - predict/classes
          linkMerge: merge_flattened
          pickValue: all_non_null
        probabilities:
          source:
          - predict/probabilities
          linkMerge: merge_flattened
          pickValue: all_non_null
        tiles: preprocess/tiles
        scenes: search/items_each
        onnx: export/onnx
      out:
      - catalog
      - record
- class: CommandLineTool
  id: stage-search
  label: eopipe search
  doc: Find scenes in a STAC catalog or API and freeze the list and the grid.
  intent:
  - edam:operation_0224
  requirements:
    NetworkAccess:
      networkAccess: false
    ResourceRequirement:
      coresMin: 1
      coresMax: 1
      ramMin: $(inputs.mem_mb)
      ramMax: $(inputs.mem_mb)
    ToolTimeLimit:
      timelimit: $(inputs.timelimit_s)
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
    DockerRequirement:
      dockerPull: ghcr.io/eopipe/eopipe:0.1.0
  baseCommand:
  - eopipe
  - search
  arguments: []
  inputs:
    items_name:
      type: string
      label: items
      doc: frozen STAC Items, one file per scene
      default: items
      inputBinding:
        prefix: --items
    grid_name:
      type: string
      label: grid
      doc: 'grid of the run: CRS, transform, shape; of several UTM zones their cells'
      default: grid.json
      inputBinding:
        prefix: --grid
    selection_name:
      type: string
      label: selection
      doc: digest of the item list; dropped scenes with the reason
      default: selection.json
      inputBinding:
        prefix: --selection
    catalog:
      type:
      - 'null'
      - File
      - Directory
      label: catalog
      doc: 'folder of a static STAC catalog, or STAC-GeoParquet: a file, or a folder of such files'
      inputBinding:
        prefix: --catalog
    area:
      type:
      - 'null'
      - File
      label: area
      doc: GeoJSON of the area of interest, in degrees
      inputBinding:
        prefix: --area
    url:
      type:
      - 'null'
      - string
      label: url
      doc: URL of a STAC API or of a static catalog
      inputBinding:
        prefix: --url
    collections:
      type:
        type: array
        items: string
      label: collections
      doc: STAC collections to search; all if empty
      default: []
      inputBinding:
        prefix: --collections
    bbox:
      type:
        type: array
        items: double
      label: bbox
      doc: 'bounding box: west south east north, in degrees'
      default: []
      inputBinding:
        prefix: --bbox
    datetime:
      type:
      - 'null'
      - string
      label: datetime
      doc: date or interval of acquisition, e.g. 2020-05-01/2020-09-30
      inputBinding:
        prefix: --datetime
    max_cloud:
      type: double
      label: max cloud
      doc: maximum cloud cover of a scene (eo:cloud_cover), in percent
      default: 100.0
      inputBinding:
        prefix: --max-cloud
    ids:
      type:
        type: array
        items: string
      label: ids
      doc: only these scenes, by id
      default: []
      inputBinding:
        prefix: --ids
    assets:
      type:
        type: array
        items: string
      label: assets
      doc: keys of the assets to fetch; every scene must have them
      default:
      - blue
      - green
      - red
      - nir
      - scl
      inputBinding:
        prefix: --assets
    on_missing:
      type: string
      label: on missing
      doc: 'scenes that lack one of the assets: fail and list them, or skip them (fail or skip)'
      default: fail
      inputBinding:
        prefix: --on-missing
    best:
      type:
      - 'null'
      - int
      label: best
      doc: 'number of least cloudy scenes to keep in each time window (default: all)'
      inputBinding:
        prefix: --best
    per:
      type: string
      label: per
      doc: time window that best applies to (all or year or month or week or day)
      default: all
      inputBinding:
        prefix: --per
    group:
      type: string
      label: group
      doc: 'what best counts: single scenes, or all scenes of a local solar day (UTC + 1 h per 15 degrees) together
        (scene or solar-day)'
      default: scene
      inputBinding:
        prefix: --group
    crs:
      type: string
      label: crs
      doc: 'CRS of the grid as EPSG:code; auto: the one of the scenes, or the UTM zone of the area; utm: cells,
        one for each UTM zone and distant part of the area'
      default: auto
      inputBinding:
        prefix: --crs
    resolution:
      type:
      - 'null'
      - double
      label: resolution
      doc: 'pixel size of the grid in units of the CRS (default: the finest of grid_assets)'
      inputBinding:
        prefix: --resolution
    grid_assets:
      type:
        type: array
        items: string
      label: grid assets
      doc: 'assets whose CRS and pixels the grid follows (default: all assets; in a config preprocess.bands, so
        that neither masks nor labels set the pixel size)'
      default: []
      inputBinding:
        prefix: --grid-assets
    deadline:
      type: double
      label: deadline
      doc: time limit for the whole search, in seconds
      default: 900.0
      inputBinding:
        prefix: --deadline
    mem_mb:
      type: int
      label: memory
      doc: memory of the job in MB
      default: 1000
    timelimit_s:
      type: int
      label: time limit
      doc: seconds after which the job is ended
      default: 1800
  outputs:
    items:
      type: Directory
      label: items
      doc: frozen STAC Items, one file per scene
      outputBinding:
        glob: $(inputs.items_name)
    items_each:
      type: File[]
      label: items, one by one
      doc: for a scatter
      format: iana:application/geo+json
      outputBinding:
        glob: $(inputs.items_name)/*.geojson
    grid:
      type: File
      format: iana:application/json
      label: grid
      doc: 'grid of the run: CRS, transform, shape; of several UTM zones their cells'
      outputBinding:
        glob: $(inputs.grid_name)
    selection:
      type: File
      format: iana:application/json
      label: selection
      doc: digest of the item list; dropped scenes with the reason
      outputBinding:
        glob: $(inputs.selection_name)
    record:
      type: File
      format: iana:application/json
      label: run record
      doc: what the job did
      outputBinding:
        glob: $(inputs.items_name).run.json
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
  - 70
- class: CommandLineTool
  id: stage-fetch
  label: eopipe fetch
  doc: Fetch the assets of one scene and verify size and checksum.
  intent:
  - edam:operation_2422
  requirements:
    NetworkAccess:
      networkAccess: false
    ResourceRequirement:
      coresMin: 1
      coresMax: 1
      ramMin: $(inputs.mem_mb)
      ramMax: $(inputs.mem_mb)
    ToolTimeLimit:
      timelimit: $(inputs.timelimit_s)
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
    DockerRequirement:
      dockerPull: ghcr.io/eopipe/eopipe:0.1.0
  baseCommand:
  - eopipe
  - fetch
  arguments: []
  inputs:
    item:
      type: File
      label: item
      doc: frozen STAC Item of the scene
      format: iana:application/geo+json
      inputBinding:
        prefix: --item
    scene_name:
      type: string
      label: scene
      doc: 'scene folder: the item and its verified assets'
      default: scene
      inputBinding:
        prefix: --scene
    catalog:
      type:
      - 'null'
      - File
      - Directory
      label: catalog
      doc: 'catalog on disk, for items with relative asset hrefs: its folder, or its STAC-GeoParquet file'
      inputBinding:
        prefix: --catalog
    grid:
      type:
      - 'null'
      - File
      label: grid
      doc: grid of the run; needed with windows
      format: iana:application/json
      inputBinding:
        prefix: --grid
    windows:
      type: boolean
      label: windows
      doc: 'fetch windows: only the blocks of (cloud-optimised) GeoTIFFs that the grid needs'
      default: false
      inputBinding:
        prefix: --windows
    workers:
      type: int
      label: workers
      doc: parallel downloads
      default: 4
      inputBinding:
        prefix: --workers
    per_host:
      type: int
      label: per host
      doc: maximum parallel connections to one host
      default: 8
      inputBinding:
        prefix: --per-host
    deadline:
      type: double
      label: deadline
      doc: time limit for one asset with all its retries, in seconds
      default: 3600.0
      inputBinding:
        prefix: --deadline
    sign:
      type: string
      label: sign
      doc: service that signs asset URLs; auto chooses by host (auto or none or planetary-computer)
      default: auto
      inputBinding:
        prefix: --sign
    private_hosts:
      type:
        type: array
        items: string
      label: private hosts
      doc: hosts inside a private network that assets may be fetched from, as name or name:port (in a config also
        the host of search.url)
      default: []
      inputBinding:
        prefix: --private-hosts
    parts:
      type:
      - 'null'
      - string
      label: parts
      doc: folder of unfinished downloads, for resume; beside the scene if not given
      inputBinding:
        prefix: --parts
    mem_mb:
      type: int
      label: memory
      doc: memory of the job in MB
      default: 1000
    timelimit_s:
      type: int
      label: time limit
      doc: seconds after which the job is ended
      default: 10800
  outputs:
    scene:
      type: Directory
      label: scene
      doc: 'scene folder: the item and its verified assets'
      outputBinding:
        glob: $(inputs.scene_name)
    record:
      type: File
      format: iana:application/json
      label: run record
      doc: what the job did
      outputBinding:
        glob: $(inputs.scene_name).run.json
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
  - 70
- class: CommandLineTool
  id: stage-preprocess
  label: eopipe preprocess
  doc: Resample one scene onto the grid and write it as a sharded Zarr store.
  intent:
  - edam:operation_3435
  requirements:
    NetworkAccess:
      networkAccess: false
    ResourceRequirement:
      coresMin: 1
      coresMax: 4
      ramMin: $(inputs.mem_mb)
      ramMax: $(inputs.mem_mb)
    ToolTimeLimit:
      timelimit: $(inputs.timelimit_s)
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
    DockerRequirement:
      dockerPull: ghcr.io/eopipe/eopipe:0.1.0
  baseCommand:
  - eopipe
  - preprocess
  arguments: []
  inputs:
    scene:
      type: Directory
      label: scene
      doc: scene with its assets, from fetch
      inputBinding:
        prefix: --scene
    grid:
      type: File
      label: grid
      doc: grid of the run
      format: iana:application/json
      inputBinding:
        prefix: --grid
    tiles_name:
      type: string
      label: tiles
      doc: 'tile store of the scene on the grid: image and valid mask'
      default: tiles.zarr
      inputBinding:
        prefix: --tiles
    bands:
      type:
        type: array
        items: string
      label: bands
      doc: band names, in channel order; visual#2 is the second band of an asset
      default:
      - blue
      - green
      - red
      - nir
      inputBinding:
        prefix: --bands
    mask:
      type: string
      label: mask
      doc: 'mask asset, e.g. scl: which pixels are usable; none masks only nodata'
      default: scl
      inputBinding:
        prefix: --mask
    mask_as:
      type: string
      label: mask as
      doc: 'kind of the mask asset; auto: known from its name (auto or classes or bits or probability)'
      default: auto
      inputBinding:
        prefix: --mask-as
    masked:
      type:
        type: array
        items: int
      label: masked
      doc: 'classes or bits of the mask asset that are masked (default: the standard ones)'
      default: []
      inputBinding:
        prefix: --masked
    max_probability:
      type: double
      label: max probability
      doc: cloud probability in percent above which pixels are masked
      default: 40.0
      inputBinding:
        prefix: --max-probability
    dilate:
      type: int
      label: dilate
      doc: 'mask dilation: also mask this many grid pixels around masked ones'
      default: 0
      inputBinding:
        prefix: --dilate
    saturated:
      type:
      - 'null'
      - double
      label: saturated
      doc: stored value at or above which a pixel is saturated, and masked
      inputBinding:
        prefix: --saturated
    offset:
      type:
      - 'null'
      - double
      label: offset
      doc: 'offset of reflectance where neither item nor product state it: -0.1 for Sentinel-2 since processing
        baseline 04.00, 0 before or where it was removed'
      inputBinding:
        prefix: --offset
    decibel:
      type: boolean
      label: decibel
      doc: convert linear radar power to dB
      default: false
      inputBinding:
        prefix: --decibel
    resampling:
      type: string
      label: resampling
      doc: resampling kernel of the bands; masks use nearest (nearest or bilinear or cubic or average or mode)
      default: bilinear
      inputBinding:
        prefix: --resampling
    on_bad:
      type: string
      label: on bad
      doc: 'bad data of a scene, such as a missing band, or a file that is refused: stop the run, or leave_out the
        scene, with the reason in log, split, report and cards (stop or leave_out)'
      default: stop
      inputBinding:
        prefix: --on-bad
    chunk:
      type: int
      label: chunk
      doc: edge of a chunk, the read unit, in pixels; about the chip size
      default: 256
      inputBinding:
        prefix: --chunk
    shard:
      type: int
      label: shard
      doc: edge of a shard, one file, in pixels
      default: 4096
      inputBinding:
        prefix: --shard
    codec:
      type: string
      label: codec
      doc: 'compression codec: lz4 decodes faster, zstd is smaller (lz4 or zstd)'
      default: lz4
      inputBinding:
        prefix: --codec
    threads:
      type: int
      label: threads
      doc: 'threads that decode, resample and encode; 0: one per core'
      default: 0
      inputBinding:
        prefix: --threads
    max_files:
      type:
      - 'null'
      - int
      label: max files
      doc: 'file budget: refuse a store that would need more files'
      inputBinding:
        prefix: --max-files
    mem_mb:
      type: int
      label: memory
      doc: memory of the job in MB
      default: 1500
    timelimit_s:
      type: int
      label: time limit
      doc: seconds after which the job is ended
      default: 3600
  outputs:
    tiles:
      type: Directory
      label: tiles
      doc: 'tile store of the scene on the grid: image and valid mask'
      outputBinding:
        glob: $(inputs.tiles_name)
    record:
      type: File
      format: iana:application/json
      label: run record
      doc: what the job did
      outputBinding:
        glob: $(inputs.tiles_name).run.json
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
  - 70
- class: CommandLineTool
  id: stage-label
  label: eopipe label
  doc: Put labels onto the grid, as class numbers or as values of a quantity, with their valid mask.
  intent:
  - edam:operation_0226
  requirements:
    NetworkAccess:
      networkAccess: false
    ResourceRequirement:
      coresMin: 1
      coresMax: 1
      ramMin: $(inputs.mem_mb)
      ramMax: $(inputs.mem_mb)
    ToolTimeLimit:
      timelimit: $(inputs.timelimit_s)
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
    DockerRequirement:
      dockerPull: ghcr.io/eopipe/eopipe:0.1.0
  baseCommand:
  - eopipe
  - label
  arguments: []
  inputs:
    grid:
      type: File
      label: grid
      doc: grid of the run
      format: iana:application/json
      inputBinding:
        prefix: --grid
    labels_name:
      type: string
      label: labels
      doc: 'label store: class numbers or continuous values, and valid mask'
      default: labels.zarr
      inputBinding:
        prefix: --labels
    source:
      type:
      - 'null'
      - File
      label: source
      doc: raster or vector file with the labels of all scenes
      inputBinding:
        prefix: --source
    before:
      type:
      - 'null'
      - File
      label: before
      doc: 'change: raster or vector file with the labels of an earlier date, in the same classes; labels become
        from-to classes'
      inputBinding:
        prefix: --before
    scene:
      type:
      - 'null'
      - Directory
      label: scene
      doc: scene whose asset holds its labels
      inputBinding:
        prefix: --scene
    asset:
      type:
      - 'null'
      - string
      label: asset
      doc: asset of each scene that holds its labels, instead of source
      inputBinding:
        prefix: --asset
    classes:
      type:
        type: array
        items: string
      label: classes
      doc: class names, in the order of the class numbers 0, 1, …
      default:
      - non-forest
      - forest
      inputBinding:
        prefix: --classes
    bins:
      type:
        type: array
        items: double
      label: bins
      doc: edges between the classes of a continuous raster, in physical units
      default: []
      inputBinding:
        prefix: --bins
    codes:
      type:
        type: array
        items: int
      label: codes
      doc: 'source value of each class (default: 0, 1, …, if the raster has no other value)'
      default: []
      inputBinding:
        prefix: --codes
    values:
      type:
        type: array
        items: string
      label: values
      doc: 'class=value for each source value, also several per class: town=1 town=2; =3 means unlabelled'
      default: []
      inputBinding:
        prefix: --values
    measure:
      type:
      - 'null'
      - string
      label: measure
      doc: quantity of continuous labels, for train.task regression; without it labels are classes
      inputBinding:
        prefix: --measure
    unit:
      type: string
      label: unit
      doc: unit of the quantity
      default: ''
      inputBinding:
        prefix: --unit
    ignore:
      type:
        type: array
        items: int
      label: ignore
      doc: source values that mean unlabelled
      default: []
      inputBinding:
        prefix: --ignore
    attribute:
      type: string
      label: attribute
      doc: attribute of a vector file with the class, or with the value of the quantity
      default: class
      inputBinding:
        prefix: --attribute
    layer:
      type:
      - 'null'
      - string
      label: layer
      doc: layer of a vector file with several layers
      inputBinding:
        prefix: --layer
    dates:
      type:
      - 'null'
      - string
      label: dates
      doc: 'date or interval, as in search.datetime, of the features of a vector file that count: by its column
        date, or start_date and end_date'
      inputBinding:
        prefix: --dates
    overlap:
      type: string
      label: overlap
      doc: 'where shapes of different labels overlap: unlabelled, or last or first in the file (invalid or last
        or first)'
      default: invalid
      inputBinding:
        prefix: --overlap
    all_touched:
      type: boolean
      label: all touched
      doc: rasterise shapes to all pixels they touch, not only to contained centres
      default: false
      inputBinding:
        prefix: --all-touched
    resampling:
      type: string
      label: resampling
      doc: 'resampling of label rasters: nearest or mode for classes; nearest, bilinear, cubic or average for a
        measure and before bins; auto: average if such a raster is finer than the grid, else nearest (auto or nearest
        or mode or bilinear or cubic or average)'
      default: auto
      inputBinding:
        prefix: --resampling
    chunk:
      type: int
      label: chunk
      doc: edge of a chunk, the read unit, in pixels
      default: 256
      inputBinding:
        prefix: --chunk
    shard:
      type: int
      label: shard
      doc: edge of a shard, one file, in pixels
      default: 4096
      inputBinding:
        prefix: --shard
    mem_mb:
      type: int
      label: memory
      doc: memory of the job in MB
      default: 1500
    timelimit_s:
      type: int
      label: time limit
      doc: seconds after which the job is ended
      default: 3600
  outputs:
    labels:
      type: Directory
      label: labels
      doc: 'label store: class numbers or continuous values, and valid mask'
      outputBinding:
        glob: $(inputs.labels_name)
    record:
      type: File
      format: iana:application/json
      label: run record
      doc: what the job did
      outputBinding:
        glob: $(inputs.labels_name).run.json
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
  - 70
- class: CommandLineTool
  id: stage-split
  label: eopipe split
  doc: Cut the grid into chips, assign them to splits by place, date or group, and audit the splits for leakage.
  intent:
  - edam:operation_3359
  requirements:
    NetworkAccess:
      networkAccess: false
    ResourceRequirement:
      coresMin: 1
      coresMax: 1
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
  hints:
    SoftwareRequirement:
      packages:
        eopipe:
          version:
          - 0.1.0
          specs:
          - https://github.com/eopipe/eopipe
    DockerRequirement:
      dockerPull: ghcr.io/eopipe/eopipe:0.1.0
  baseCommand:
  - eopipe
  - split
  arguments:
  - --tiles
  - '@tiles.list.json'
  - --labels
  - '@labels.list.json'
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
      doc: label store of all scenes, or one per scene
    chips_name:
      type: string
      label: chips
      doc: chips of each split, and the leakage audit
      default: split.json
      inputBinding:
        prefix: --chips
    statistics_name:
      type: string
      label: statistics
      doc: band statistics (mean, std, histogram) of the training chips
      default: statistics.json
      inputBinding:
        prefix: --statistics
    map_name:
      type: string
      label: map
      doc: map of the splits and their classes
      default: split.png
      inputBinding:
        prefix: --map
    outlines_name:
      type: string
      label: outlines
      doc: chips as polygons, with split, scene and classes
      default: split.gpkg
      inputBinding:
        prefix: --outlines
    chip:
      type: int
      label: chip
      doc: edge of a chip in pixels
      default: 256
      inputBinding:
        prefix: --chip
    stride:
      type:
      - 'null'
      - int
      label: stride
      doc: 'step between chips in pixels (default: the edge of a chip)'
      inputBinding:
        prefix: --stride
    method:
      type: string
      label: method
      doc: 'random blocks; checkerboard, one colour for train; strips in the order train, val, test; temporal: scenes
        by date; group: whole groups; random: single chips, which leaks between neighbours and must be allowed (blocks
        or checkerboard or west-east or east-west or north-south or south-north or temporal or group or random)'
      default: blocks
      inputBinding:
        prefix: --method
    fractions:
      type:
        type: array
        items: double
      label: fractions
      doc: fractions of train, val and test
      default:
      - 0.7
      - 0.15
      - 0.15
      inputBinding:
        prefix: --fractions
    block:
      type: int
      label: block
      doc: edge of a block, or of a square of the checkerboard, in pixels
      default: 1024
      inputBinding:
        prefix: --block
    buffer:
      type: int
      label: buffer
      doc: minimum distance between splits in pixels
      default: 0
      inputBinding:
        prefix: --buffer
    folds:
      type: int
      label: folds
      doc: 'number of cross-validation folds; 0: one split by the fractions'
      default: 0
      inputBinding:
        prefix: --folds
    fold:
      type: int
      label: fold
      doc: number of the test fold, from 0
      default: 0
      inputBinding:
        prefix: --fold
    dates:
      type:
        type: array
        items: string
      label: dates
      doc: 'temporal split: first day of val and of test, or of test only'
      default: []
      inputBinding:
        prefix: --dates
    by:
      type: string
      label: by
      doc: 'group split: unit that is kept whole; a scene of a chip set is an image file, a tile is of MGRS or WRS-2,
        a polygon of the labels, whose pixels are masked in the chips of other splits, a column of the index of
        a chip set (scene or tile or region or polygon or column)'
      default: scene
      inputBinding:
        prefix: --by
    val_groups:
      type:
        type: array
        items: string
      label: val groups
      doc: names of the validation groups
      default: []
      inputBinding:
        prefix: --val-groups
    test_groups:
      type:
        type: array
        items: string
      label: test groups
      doc: 'names of the test groups; all others train (default: groups at random)'
      default: []
      inputBinding:
        prefix: --test-groups
    regions:
      type:
      - 'null'
      - File
      label: regions
      doc: polygons of the regions of a group split
      inputBinding:
        prefix: --regions
    attribute:
      type: string
      label: attribute
      doc: attribute with the region of a polygon, or column of a chip set
      default: region
      inputBinding:
        prefix: --attribute
    block_km:
      type: double
      label: block km
      doc: edge in km of the equal-area blocks of a chip set (eopipe import)
      default: 50.0
      inputBinding:
        prefix: --block-km
    min_valid:
      type: double
      label: min valid
      doc: minimum fraction of valid, labelled pixels in a chip
      default: 0.5
      inputBinding:
        prefix: --min-valid
    min_scene_valid:
      type: double
      label: min scene valid
      doc: minimum valid fraction of a scene; scenes below it are excluded
      default: 0.0
      inputBinding:
        prefix: --min-scene-valid
    seed:
      type: int
      label: seed
      doc: seed of random assignments
      default: 0
      inputBinding:
        prefix: --seed
    similarity:
      type: double
      label: similarity
      doc: correlation after alignment at or above which chips of two splits are near duplicates
      default: 0.97
      inputBinding:
        prefix: --similarity
    allow:
      type:
        type: array
        items: string
      label: allow
      doc: 'accepted findings of the leakage audit, each as ''kind: reason'''
      default: []
      inputBinding:
        prefix: --allow
    mem_mb:
      type: int
      label: memory
      doc: memory of the job in MB
      default: 2000
    timelimit_s:
      type: int
      label: time limit
      doc: seconds after which the job is ended
      default: 19800
  outputs:
    chips:
      type: File
      format: iana:application/json
      label: chips
      doc: chips of each split, and the leakage audit
      outputBinding:
        glob: $(inputs.chips_name)
    statistics:
      type: File
      format: iana:application/json
      label: statistics
      doc: band statistics (mean, std, histogram) of the training chips
      outputBinding:
        glob: $(inputs.statistics_name)
    map:
      type: File
      format: iana:image/png
      label: map
      doc: map of the splits and their classes
      outputBinding:
        glob: $(inputs.map_name)
    outlines:
      type: File
      format: iana:application/geopackage+sqlite3
      label: outlines
      doc: chips as polygons, with split, scene and classes
      outputBinding:
        glob: $(inputs.outlines_name)
    record:
      type: File
      format: iana:application/json
      label: run record
      doc: what the job did
      outputBinding:
        glob: $(inputs.chips_name).run.json
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
  - 70
- class: CommandLineTool
  id: stage-train
  label: eopipe train
  doc: 'Train a model on chips: segmentation, classification, multilabel or regression, on any number of processes.'
  intent:
  - edam:operation_2426
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
    DockerRequirement:
      dockerPull: ghcr.io/eopipe/eopipe:0.1.0
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
      doc: share of the steps after which the training pauses, at the next validation; the model folder then has
        the checkpoint from which another training continues
      inputBinding:
        prefix: --until
    task:
      type: string
      label: task
      doc: 'learning task: the class of each pixel, the majority class of each chip, all classes of each chip (multilabel),
        or the value of each pixel (segmentation or classification or multilabel or regression)'
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
      doc: 'model architecture: unet, convnext, temporal, linear, or a class of your own or of a library as module:Class
        or file.py:Class'
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
      doc: 'bands of pretrained weights of a custom model, in their order, e.g. red green blue: its first layer
        is changed to the bands of the run by name'
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
      doc: 'number of training steps (default: 200 to 750, by the labelled pixels of the training; where a chip
        has one label 200, or 10 passes over the chips)'
      inputBinding:
        prefix: --steps
    epochs:
      type:
      - 'null'
      - int
      label: epochs
      doc: number of epochs, passes over the training chips; in place of steps
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
        and lovasz are means over chips, not pixels (cross_entropy or focal or dice or lovasz or huber or mse or
        binary_cross_entropy or binary_focal)'
      inputBinding:
        prefix: --loss
    class_weights:
      type:
      - 'null'
      - string
      label: class weights
      doc: 'class weights in cross_entropy and focal: the inverse frequency to a power, of 1 for balanced (the same
        total weight for every class), 1/2 for sqrt, 1/4 for fourth_root (default where the loss takes weights);
        for multilabel, weights of the chips with a class against those without it (none or fourth_root or sqrt
        or balanced)'
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
  - 70
- class: CommandLineTool
  id: stage-predict
  label: eopipe predict
  doc: Predict a seamless map of classes and their probabilities, or of values, window by window.
  intent:
  - edam:operation_2423
  requirements:
    NetworkAccess:
      networkAccess: false
    ResourceRequirement:
      coresMin: 1
      coresMax: 4
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
      - entryname: finished_parts.list.json
        entry: '$(inputs.finished_parts)

          '
  hints:
    SoftwareRequirement:
      packages:
        eopipe:
          version:
          - 0.1.0
          specs:
          - https://github.com/eopipe/eopipe
    DockerRequirement:
      dockerPull: ghcr.io/eopipe/eopipe:0.1.0
  baseCommand:
  - eopipe
  - predict
  arguments:
  - --tiles
  - '@tiles.list.json'
  - --finished-parts
  - '@finished_parts.list.json'
  inputs:
    model:
      type:
      - File
      - Directory
      label: model
      doc: 'trained model: its folder, its STAC Item model.json, or a STAC catalog with it'
      inputBinding:
        prefix: --model
    tiles:
      type:
        type: array
        items: Directory
      label: tiles
      doc: tile stores; predictions are averaged over valid scenes
    classes_name:
      type: string
      label: classes
      doc: COG of class numbers, 255 where no scene is valid; for multilabel, one band per class (1 present, 0 absent);
        for regression, of values
      default: classes.tif
      inputBinding:
        prefix: --classes
    probabilities_name:
      type: string
      label: probabilities
      doc: COG of class probabilities, one band per class, scale 1/10000; for regression, standard deviation among
        the scenes and their number; for an ensemble, also the spread of its members
      default: probabilities.tif
      inputBinding:
        prefix: --probabilities
    calibration:
      type:
      - 'null'
      - File
      label: calibration
      doc: calibration of the probabilities, as calibrate writes it for the same model
      format: iana:application/json
      inputBinding:
        prefix: --calibration
    chips:
      type:
      - 'null'
      - File
      label: chips
      doc: split file, of which the places of one split are mapped, with --places
      format: iana:application/json
      inputBinding:
        prefix: --chips
    finished_parts:
      type:
        type: array
        items: File
      label: finished parts
      doc: 'both files of parts of maps, from predict --part: what they have is not predicted again'
      format: iana:image/tiff
      default: []
    colors:
      type:
        type: array
        items: string
      label: colors
      doc: 'colour of each class as #rrggbb, for the colour table of the class map; as in the report if not given'
      default: []
      inputBinding:
        prefix: --colors
    allow:
      type:
        type: array
        items: string
      label: allow
      doc: 'accepted differences of the tiles from the training tiles, each as ''kind: reason'', with a kind of
        pixel-size, unit, level'
      default: []
      inputBinding:
        prefix: --allow
    cell:
      type:
      - 'null'
      - string
      label: cell
      doc: cell to map, such as utm33n, where tiles have several; a workflow maps each one
      inputBinding:
        prefix: --cell
    part:
      type:
      - 'null'
      - string
      label: part
      doc: 'part of the map to make, such as 3-of-16: a run of its windows'
      inputBinding:
        prefix: --part
    places:
      type:
      - 'null'
      - string
      label: places
      doc: places of the split file to map, in the place of everything (train or val or test)
      inputBinding:
        prefix: --places
    halo:
      type:
      - 'null'
      - int
      label: halo
      doc: 'pixels read around each window (default: receptive-field radius)'
      inputBinding:
        prefix: --halo
    window:
      type: int
      label: window
      doc: edge of a window in pixels; memory grows with its square
      default: 512
      inputBinding:
        prefix: --window
    symmetries:
      type: int
      label: symmetries
      doc: 'predictions of each window whose mean is the map: 1 (as it is), 2 (also flipped left to right), 4 (the
        rotations) or 8 (rotations and flips); costs as many times more'
      default: 1
      inputBinding:
        prefix: --symmetries
    device:
      type: string
      label: device
      doc: device to compute on (auto or cpu or cuda)
      default: auto
      inputBinding:
        prefix: --device
    allow_code:
      type:
      - 'null'
      - string
      label: allow code
      doc: 'permission to run the code of a custom model: the class that its model.json names, as module:Class or
        file.py:Class'
      inputBinding:
        prefix: --allow-code
    threads:
      type: int
      label: threads
      doc: 'windows that are predicted at a time, each by one thread; 0: one per core, at most 8'
      default: 0
      inputBinding:
        prefix: --threads
    mem_mb:
      type: int
      label: memory
      doc: memory of the job in MB
      default: 3000
    timelimit_s:
      type: int
      label: time limit
      doc: seconds after which the job is ended
      default: 21600
  outputs:
    classes:
      type: File
      format: iana:image/tiff
      label: classes
      doc: COG of class numbers, 255 where no scene is valid; for multilabel, one band per class (1 present, 0 absent);
        for regression, of values
      outputBinding:
        glob: $(inputs.classes_name)
    probabilities:
      type: File
      format: iana:image/tiff
      label: probabilities
      doc: COG of class probabilities, one band per class, scale 1/10000; for regression, standard deviation among
        the scenes and their number; for an ensemble, also the spread of its members
      outputBinding:
        glob: $(inputs.probabilities_name)
    record:
      type: File
      format: iana:application/json
      label: run record
      doc: what the job did
      outputBinding:
        glob: $(inputs.classes_name).run.json
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
  - 70
- class: CommandLineTool
  id: stage-evaluate
  label: eopipe evaluate
  doc: Score the map against the labels in the test areas, beside the majority class and two baselines of trees.
  intent:
  - edam:operation_2238
  requirements:
    NetworkAccess:
      networkAccess: false
    ResourceRequirement:
      coresMin: 1
      coresMax: 1
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
      - entryname: classes.list.json
        entry: '$(inputs.classes)

          '
      - entryname: tiles.list.json
        entry: '$(inputs.tiles)

          '
      - entryname: labels.list.json
        entry: '$(inputs.labels)

          '
      - entryname: probabilities.list.json
        entry: '$(inputs.probabilities)

          '
      - entryname: member_maps.list.json
        entry: '$(inputs.member_maps)

          '
  hints:
    SoftwareRequirement:
      packages:
        eopipe:
          version:
          - 0.1.0
          specs:
          - https://github.com/eopipe/eopipe
    DockerRequirement:
      dockerPull: ghcr.io/eopipe/eopipe:0.1.0
  baseCommand:
  - eopipe
  - evaluate
  arguments:
  - --classes
  - '@classes.list.json'
  - --tiles
  - '@tiles.list.json'
  - --labels
  - '@labels.list.json'
  - --probabilities
  - '@probabilities.list.json'
  - --member-maps
  - '@member_maps.list.json'
  inputs:
    classes:
      type:
        type: array
        items: File
      label: classes
      doc: 'maps of classes or values: one mosaic, or one per scene in the order of the tiles; where tiles have
        several cells, one of each cell in any order'
      format: iana:image/tiff
    tiles:
      type:
        type: array
        items: Directory
      label: tiles
      doc: tile stores that the tree baselines are trained on
    labels:
      type:
        type: array
        items: Directory
      label: labels
      doc: label store for all scenes, or one per scene
    metrics_name:
      type: string
      label: metrics
      doc: scores of the map and of the baselines
      default: metrics.json
      inputBinding:
        prefix: --metrics
    chips:
      type:
      - 'null'
      - File
      label: chips
      doc: 'split file: chips of the train, val and test splits'
      format: iana:application/json
      inputBinding:
        prefix: --chips
    tested_model:
      type:
      - 'null'
      - Directory
      label: tested model
      doc: 'finished model, in the place of a split file: all labels test its maps'
      inputBinding:
        prefix: --tested-model
    probabilities:
      type:
        type: array
        items: File
      label: probabilities
      doc: maps of probabilities in the order of the maps, for their calibration
      format: iana:image/tiff
      default: []
    member_maps:
      type:
        type: array
        items:
        - 'null'
        - File
        - type: array
          items:
          - 'null'
          - File
      label: member maps
      doc: 'maps of an ensemble''s members: all maps of the first member first'
      format: iana:image/tiff
      default: []
    baseline_pixels:
      type: int
      label: baseline pixels
      doc: maximum number of training pixels of each fit of the tree baselines
      default: 100000
      inputBinding:
        prefix: --baseline-pixels
    seed:
      type: int
      label: seed
      doc: 'random seed of the tree baselines: their samples of pixels and their fits'
      default: 0
      inputBinding:
        prefix: --seed
    mem_mb:
      type: int
      label: memory
      doc: memory of the job in MB
      default: 3000
    timelimit_s:
      type: int
      label: time limit
      doc: seconds after which the job is ended
      default: 7200
  outputs:
    metrics:
      type: File
      format: iana:application/json
      label: metrics
      doc: scores of the map and of the baselines
      outputBinding:
        glob: $(inputs.metrics_name)
    record:
      type: File
      format: iana:application/json
      label: run record
      doc: what the job did
      outputBinding:
        glob: $(inputs.metrics_name).run.json
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
  - 70
- class: CommandLineTool
  id: stage-export
  label: eopipe export
  doc: Export the model to ONNX and compare its output with the original on real chips.
  intent:
  - edam:operation_3434
  requirements:
    NetworkAccess:
      networkAccess: false
    ResourceRequirement:
      coresMin: 1
      coresMax: 1
      ramMin: $(inputs.mem_mb)
      ramMax: $(inputs.mem_mb)
    ToolTimeLimit:
      timelimit: $(inputs.timelimit_s)
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
    DockerRequirement:
      dockerPull: ghcr.io/eopipe/eopipe:0.1.0
  baseCommand:
  - eopipe
  - export
  arguments: []
  inputs:
    model:
      type: Directory
      label: model
      doc: trained model
      inputBinding:
        prefix: --model
    tiles:
      type: Directory
      label: tiles
      doc: tile store whose pixels the comparison uses
      inputBinding:
        prefix: --tiles
    onnx_name:
      type: string
      label: onnx
      doc: 'ONNX model: normalisation, network, and softmax or scaling of the output in one graph'
      default: model.onnx
      inputBinding:
        prefix: --onnx
    check_name:
      type: string
      label: check
      doc: largest difference from the original model
      default: export.json
      inputBinding:
        prefix: --check
    opset:
      type: int
      label: opset
      doc: version of the ONNX operator set
      default: 18
      inputBinding:
        prefix: --opset
    tolerance:
      type: double
      label: tolerance
      doc: maximum difference of a probability, or of a value in standard deviations of the labels
      default: 0.0001
      inputBinding:
        prefix: --tolerance
    allow_code:
      type:
      - 'null'
      - string
      label: allow code
      doc: 'permission to run the code of a custom model: the class that its model.json names, as module:Class or
        file.py:Class'
      inputBinding:
        prefix: --allow-code
    mem_mb:
      type: int
      label: memory
      doc: memory of the job in MB
      default: 2500
    timelimit_s:
      type: int
      label: time limit
      doc: seconds after which the job is ended
      default: 3600
  outputs:
    onnx:
      type: File
      format: edam:format_2333
      label: onnx
      doc: 'ONNX model: normalisation, network, and softmax or scaling of the output in one graph'
      outputBinding:
        glob: $(inputs.onnx_name)
    check:
      type: File
      format: iana:application/json
      label: check
      doc: largest difference from the original model
      outputBinding:
        glob: $(inputs.check_name)
    record:
      type: File
      format: iana:application/json
      label: run record
      doc: what the job did
      outputBinding:
        glob: $(inputs.onnx_name).run.json
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
  - 70
- class: CommandLineTool
  id: stage-catalog
  label: eopipe catalog
  doc: Export model, maps and tiles as a self-contained STAC catalog.
  intent:
  - edam:operation_3431
  requirements:
    NetworkAccess:
      networkAccess: false
    ResourceRequirement:
      coresMin: 1
      coresMax: 1
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
      - entryname: classes.list.json
        entry: '$(inputs.classes)

          '
      - entryname: probabilities.list.json
        entry: '$(inputs.probabilities)

          '
      - entryname: tiles.list.json
        entry: '$(inputs.tiles)

          '
      - entryname: scenes.list.json
        entry: '$(inputs.scenes)

          '
  hints:
    SoftwareRequirement:
      packages:
        eopipe:
          version:
          - 0.1.0
          specs:
          - https://github.com/eopipe/eopipe
    DockerRequirement:
      dockerPull: ghcr.io/eopipe/eopipe:0.1.0
  baseCommand:
  - eopipe
  - catalog
  arguments:
  - --classes
  - '@classes.list.json'
  - --probabilities
  - '@probabilities.list.json'
  - --tiles
  - '@tiles.list.json'
  - --scenes
  - '@scenes.list.json'
  inputs:
    model:
      type: Directory
      label: model
      doc: 'trained model: its folder, or a STAC catalog that contains it'
      inputBinding:
        prefix: --model
    classes:
      type:
        type: array
        items: File
      label: classes
      doc: 'class maps: one mosaic, or one per scene'
      format: iana:image/tiff
    probabilities:
      type:
        type: array
        items: File
      label: probabilities
      doc: probability maps, in the order of the class maps
      format: iana:image/tiff
    tiles:
      type:
        type: array
        items: Directory
      label: tiles
      doc: tile stores that the maps were predicted from
    catalog_name:
      type: string
      label: catalog
      doc: self-contained STAC catalog of model, maps and tiles
      default: catalog
      inputBinding:
        prefix: --catalog
    scenes:
      type:
        type: array
        items: File
      label: scenes
      doc: frozen STAC Items of the run; none of a chip set
      format: iana:application/geo+json
      default: []
    metrics:
      type:
      - 'null'
      - File
      label: metrics
      doc: test metrics of the maps
      format: iana:application/json
      inputBinding:
        prefix: --metrics
    onnx:
      type:
      - 'null'
      - File
      label: onnx
      doc: the model in ONNX format, as export writes it
      format: edam:format_2333
      inputBinding:
        prefix: --onnx
    title:
      type: string
      label: title
      doc: title of the catalog
      default: eopipe run
      inputBinding:
        prefix: --title
    description:
      type: string
      label: description
      doc: description of the catalog
      default: Model, maps and tiles that eopipe made from satellite scenes.
      inputBinding:
        prefix: --description
    license:
      type: string
      label: license
      doc: 'licence of maps and tiles: SPDX identifier such as CC-BY-4.0, or URL'
      default: ''
      inputBinding:
        prefix: --license
    mem_mb:
      type: int
      label: memory
      doc: memory of the job in MB
      default: 1000
    timelimit_s:
      type: int
      label: time limit
      doc: seconds after which the job is ended
      default: 5400
  outputs:
    catalog:
      type: Directory
      label: catalog
      doc: self-contained STAC catalog of model, maps and tiles
      outputBinding:
        glob: $(inputs.catalog_name)
    record:
      type: File
      format: iana:application/json
      label: run record
      doc: what the job did
      outputBinding:
        glob: $(inputs.catalog_name).run.json
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
  - 70
- class: CommandLineTool
  id: stage-cells
  label: eopipe cwl cells
  doc: List the cells of the run.
  intent:
  - edam:operation_2409
  requirements:
    NetworkAccess:
      networkAccess: false
    ResourceRequirement:
      coresMin: 1
      coresMax: 1
      ramMin: 1000
      ramMax: 1000
    ToolTimeLimit:
      timelimit: 600
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
    DockerRequirement:
      dockerPull: ghcr.io/eopipe/eopipe:0.1.0
  baseCommand:
  - eopipe
  - cwl
  - cells
  inputs:
    grid:
      type: File
      label: grid
      doc: grid of the run
      format: iana:application/json
      inputBinding:
        prefix: --grid
    map_parts:
      type: int
      label: map parts
      doc: 'parts of each map, which jobs of their own make and another one joins; 1: none'
      default: 1
      inputBinding:
        prefix: --map-parts
  outputs:
    cells:
      type: string[]
      label: cells
      doc: cells of the run; an empty text for the only one
    endings:
      type: string[]
      label: endings
      doc: what the names of the maps of the cells end with
    parts:
      type: string[]
      label: parts
      doc: parts of the maps of all cells, such as 3-of-16; none where a map is made as a whole
    part_cells:
      type: string[]
      label: part cells
      doc: the cell of each part
    part_endings:
      type: string[]
      label: part endings
      doc: what the names of its files end with
