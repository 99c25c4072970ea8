# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: Workflow
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe finished model
doc: Satellite scenes to a map by a model that was trained before, which labels may test.
intent:
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
  model:
    type: Directory
    label: model
    doc: trained model
  calibration:
    type:
    - 'null'
    - File
    label: calibration
    doc: temperature of its probabilities
    format: iana:application/json
  with_labels:
    type: boolean
    label: with labels
    doc: 'test the map with labels: of label_source, or of label_asset'
    default: false
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
      or start_date and end_date'
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
  report_title:
    type: string
    label: report.title
    doc: title of page, map and cards; of a chip set its name, if not given
    default: eopipe run
  report_attribution:
    type: string
    label: report.attribution
    doc: credit line of the data, on page and map
    default: ''
  report_colors:
    type:
      type: array
      items: string
    label: report.colors
    doc: 'colour of each class as #rrggbb; a colour-blind-safe palette if not given'
    default: []
  describe_mem_mb:
    type: int
    label: memory of describe
    doc: memory of the job in MB
    default: 2000
  describe_timelimit_s:
    type: int
    label: time limit of describe
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
  crate_title:
    type: string
    label: crate.title
    doc: name of the crate
    default: eopipe run
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
  map_parts:
    type: int
    label: map parts
    doc: 'parts of each map, which jobs of their own make and another one joins; 1: none'
    default: 1
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
    doc: all of this workflow in one file, which the crate contains
    default:
      class: File
      location: packed/finished-model.cwl
steps:
  steps:
    label: steps
    doc: Decide which steps the settings need.
    run: steps.cwl
    in:
      label_asset: label_asset
      composite_method: composite_method
      with_labels: with_labels
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
      per_host: fetch_per_host
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
      model: model
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
      calibration: calibration
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
      model: model
      tiles:
        source:
        - composite/images
        - preprocess/tiles
        pickValue: first_non_null
      calibration: calibration
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
      model: model
      calibration: calibration
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
    doc: Score the map against the labels in the test areas, beside the majority class and two baselines of trees.
    run: evaluate.cwl
    when: $(inputs.wanted)
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
      probabilities:
        source:
        - predict/probabilities
        - predict_images/probabilities
        linkMerge: merge_flattened
        pickValue: all_non_null
      tested_model: model
      wanted: with_labels
    out:
    - metrics
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
      title: catalog_title
      description: catalog_description
      license: crate_license
      mem_mb: catalog_mem_mb
      timelimit_s: catalog_timelimit_s
      model: model
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
    out:
    - catalog
    - record
  describe:
    label: describe
    doc: Write the report of maps that a finished model made of scenes other than its training scenes, and a map
      sheet.
    run: describe.cwl
    when: $(inputs.wanted)
    in:
      title: report_title
      attribution: report_attribution
      colors: report_colors
      mem_mb: describe_mem_mb
      timelimit_s: describe_timelimit_s
      model: model
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
      wanted: with_report
    out:
    - page
    - picture
    - record
  crate:
    label: crate
    doc: Package a run as an RO-Crate, with the provenance of every result.
    run: crate.cwl
    when: $(inputs.wanted)
    in:
      title: crate_title
      description: crate_description
      license: crate_license
      author: crate_author
      orcid: crate_orcid
      organization: crate_organization
      ror: crate_ror
      coauthors: crate_coauthors
      funding: crate_funding
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
        - predict_parts/record
        - predict/record
        - predict_images/record
        - evaluate/record
        - describe/record
        - products/record
        - publish/record
        linkMerge: merge_flattened
        pickValue: all_non_null
      payload:
        source:
        - search/grid
        - search/selection
        - evaluate/metrics
        - describe/page
        - describe/picture
        - model
        - calibration
        - predict/classes
        - predict_images/classes
        - predict/probabilities
        - predict_images/probabilities
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
    doc: label store of all scenes, or one per scene; none without labels
    outputSource:
    - label/labels
    - label_scenes/labels
    linkMerge: merge_flattened
    pickValue: all_non_null
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
    type:
    - 'null'
    - File
    label: metrics
    doc: scores of the maps, on all labels
    format: iana:application/json
    outputSource: evaluate/metrics
  page:
    type:
    - 'null'
    - File
    label: page
    doc: the report as one HTML page
    format: iana:text/html
    outputSource: describe/page
  picture:
    type:
    - 'null'
    - File
    label: picture
    doc: the map as a PNG image
    format: iana:image/png
    outputSource: describe/picture
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
