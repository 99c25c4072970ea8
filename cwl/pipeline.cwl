cwlVersion: v1.2
class: Workflow
$namespaces:
  edam: http://edamontology.org/
  s: https://schema.org/
  iana: https://www.iana.org/assignments/media-types/
label: eopipe
doc: Satellite scenes to a trained, evaluated, mapped and citable model; one label file for all scenes.
intent: [edam:operation_2426, edam:operation_2423]
s:license: https://spdx.org/licenses/Apache-2.0
s:author:
  - {s:name: The eopipe team, s:email: team@example.org, s:url: https://github.com/eopipe/eopipe}

requirements:
  MultipleInputFeatureRequirement: {}
  ScatterFeatureRequirement: {}
  StepInputExpressionRequirement: {}
  SubworkflowFeatureRequirement: {}

inputs:
  catalog: {type: Directory, label: catalog, doc: folder of a static STAC catalog}
  area: {type: "File?", label: area, doc: "GeoJSON of the area of interest, in degrees"}
  ids: {type: "string[]", label: scenes, doc: "ids of the scenes to use; empty: all", default: []}
  datetime: {type: "string?", label: dates, doc: "date or interval of dates, as in STAC API"}
  assets: {type: "string[]", label: assets, doc: assets that every scene must have}
  bands: {type: "string[]", label: bands, doc: "band names, in channel order"}
  mask: {type: string, label: mask, doc: asset of the pixel quality mask (scene classification)}
  chunk: {type: int, label: chunk, doc: edge of a chunk in pixels}
  shard: {type: int, label: shard, doc: edge of a shard in pixels}
  source: {type: File, label: labels, doc: raster or vector file of the labels}
  label_classes: {type: "string[]", label: class names, doc: "class names, in the order of the class numbers"}
  bins: {type: "double[]", label: bins, doc: bin edges that divide a continuous raster into the classes, default: []}
  measure: {type: "string?", label: measure, doc: "quantity that the labels measure, for regression"}
  unit: {type: string, label: unit, doc: unit of the measured quantity, default: ""}
  task: {type: string, label: task, doc: "segmentation, classification or regression", default: segmentation}
  method: {type: string, label: split method, doc: "split method: how chips are assigned to train, val and test"}
  fractions: {type: "double[]", label: fractions, doc: "fractions of train, val, test"}
  chip: {type: int, label: chip, doc: edge of a chip in pixels}
  stride: {type: "int?", label: stride, doc: step between chips in pixels}
  folds: {type: int, label: folds, doc: "number of folds of a cross-validation; 0: none", default: 0}
  fold: {type: "int[]", label: fold numbers, doc: "folds to run, such as [0, 1, 2] of 3 folds", default: []}
  architecture: {type: string, label: architecture, doc: "built-in model, or module:Class", default: unet}
  arguments: {type: "string[]", label: arguments, doc: "further model arguments as name=value", default: []}
  model_files:
    type: {type: array, items: [File, Directory]}
    label: model files
    doc: "code of a custom model, and files that its arguments name"
    default: []
  weights_bands: {type: "string[]", label: weights bands, doc: "bands of pretrained weights, in their order", default: []}
  weights_mean: {type: "double[]", label: weights mean, doc: mean of these bands that the weights expect, default: []}
  weights_std: {type: "double[]", label: weights deviation, doc: standard deviation of these bands, default: []}
  weights_scale: {type: double, label: weights scale, doc: what 1 in the unit of the tiles is in theirs, default: 1.0}
  processes: {type: int, label: processes, doc: torchrun workers, default: 1}
  width: {type: int, label: width, doc: channels of the first level of the model, default: 16}
  epochs: {type: int, label: epochs, doc: passes over the training chips (epochs)}
  batch: {type: int, label: batch, doc: batch size in chips}
  learning_rate: {type: double, label: learning rate, doc: maximum learning rate}
  title: {type: string, label: title, doc: title of the report and of the crate}
  colors: {type: "string[]", label: colours, doc: "colour of each class as #rrggbb, for map and report; empty: a palette", default: []}
  attribution: {type: string, label: attribution, doc: credit line of the data, default: ""}
  use: {type: string, label: intended use, doc: intended use of the model, default: ""}
  limits: {type: "string[]", label: limits, doc: uses that the model is not suitable for, default: []}
  author: {type: string, label: author, doc: author to cite for the model, default: ""}
  license: {type: string, label: licence, doc: "licence of crate, model, maps and tiles; empty: none stated", default: ""}
  with_onnx: {type: boolean, label: with ONNX, doc: export the model to ONNX, default: true}
  with_report: {type: boolean, label: with report, doc: make the report and the cards, default: true}
  with_crate: {type: boolean, label: with crate, doc: make the Provenance Run Crate, default: true}
  lock: {type: "File?", label: lock, doc: "pinned versions of the software, for the crate", format: iana:text/plain}
  workflow:
    type: File
    label: workflow
    doc: "this file, which the crate contains"
    default: {class: File, location: pipeline.cwl}

steps:
  search:
    label: search
    doc: Search for scenes; freeze their list and the grid.
    run: search.cwl
    in: {catalog: catalog, area: area, ids: ids, datetime: datetime, assets: assets, grid_assets: bands}
    out: [items_each, grid, selection, record]

  fetch:
    label: fetch
    doc: Download and verify the assets of each scene; scatter over the scenes.
    run: fetch.cwl
    scatter: item
    in:
      item: search/items_each
      catalog: catalog
      scene_name: {valueFrom: $(inputs.item.nameroot)}
    out: [scene, record]

  preprocess:
    label: preprocess
    doc: Warp each scene onto the grid; scatter over the scenes.
    run: preprocess.cwl
    scatter: scene
    in:
      scene: fetch/scene
      grid: search/grid
      tiles_name: {valueFrom: $(inputs.scene.basename).zarr}
      bands: bands
      mask: mask
      chunk: chunk
      shard: shard
    out: [tiles, record]

  label:
    label: label
    doc: Rasterize or resample the labels onto the grid.
    run: label.cwl
    in:
      grid: search/grid
      source: source
      classes: label_classes
      bins: bins
      measure: measure
      unit: unit
      chunk: chunk
      shard: shard
      labels_name: {default: all.zarr}
    out: [labels, record]

  split:
    label: split
    doc: Split the chips into train, val and test by location.
    run: split.cwl
    in:
      tiles: preprocess/tiles
      labels: {source: [label/labels], linkMerge: merge_nested}
      method: method
      fractions: fractions
      chip: chip
      stride: stride
    out: [chips, statistics, map, places, record]

  train:
    label: train
    doc: Train with torchrun.
    run: train.cwl
    in:
      tiles: preprocess/tiles
      labels: {source: [label/labels], linkMerge: merge_nested}
      chips: split/chips
      statistics: split/statistics
      task: task
      architecture: architecture
      arguments: arguments
      model_files: model_files
      weights_bands: weights_bands
      weights_mean: weights_mean
      weights_std: weights_std
      weights_scale: weights_scale
      processes: processes
      width: width
      epochs: epochs
      batch: batch
      learning_rate: learning_rate
    out: [model, record]

  calibrate:
    label: calibrate
    doc: Temperature of the probabilities, fitted on the validation places.
    run: calibrate.cwl
    in:
      model: train/model
      allow_code: architecture
      tiles: preprocess/tiles
      labels: {source: [label/labels], linkMerge: merge_nested}
      chips: split/chips
    out: [calibration, record]

  predict:
    label: predict
    doc: Map of classes, and map of their probabilities.
    run: predict.cwl
    in:
      model: train/model
      tiles: preprocess/tiles
      calibration: calibrate/calibration
      colors: colors
      allow_code: architecture
    out: [classes, probabilities, record]

  evaluate:
    label: evaluate
    doc: Metrics of the map in the test areas, beside two baselines.
    run: evaluate.cwl
    in:
      classes: {source: [predict/classes], linkMerge: merge_nested}
      probabilities: {source: [predict/probabilities], linkMerge: merge_nested}
      tiles: preprocess/tiles
      labels: {source: [label/labels], linkMerge: merge_nested}
      chips: split/chips
    out: [metrics, record]

  cross_validate:
    label: cross-validate
    doc: Cross-validation; scatter over the folds.
    run: fold.cwl
    scatter: fold
    in:
      fold: fold
      folds: folds
      tiles: preprocess/tiles
      labels: {source: [label/labels], linkMerge: merge_nested}
      method: method
      chip: chip
      stride: stride
      task: task
      architecture: architecture
      arguments: arguments
      model_files: model_files
      weights_bands: weights_bands
      weights_mean: weights_mean
      weights_std: weights_std
      weights_scale: weights_scale
      processes: processes
      width: width
      epochs: epochs
      batch: batch
      learning_rate: learning_rate
    out: [metrics, model, split_record, train_record, calibrate_record, predict_record, evaluate_record]

  export:
    label: export
    doc: Export the model to ONNX and compare the outputs of both.
    run: export.cwl
    when: $(inputs.wanted)
    in:
      wanted: with_onnx
      model: train/model
      allow_code: architecture
      tiles: {source: preprocess/tiles, valueFrom: "$(self[0])"}
    out: [onnx, check, record]

  report:
    label: report
    doc: Report as one HTML page.
    run: report.cwl
    when: $(inputs.wanted)
    in:
      wanted: with_report
      metrics: evaluate/metrics
      model: train/model
      chips: split/chips
      classes: {source: [predict/classes], linkMerge: merge_nested}
      probabilities: {source: [predict/probabilities], linkMerge: merge_nested}
      tiles: preprocess/tiles
      labels: {source: [label/labels], linkMerge: merge_nested}
      scenes: search/items_each
      title: title
      attribution: attribution
      use: use
      limits: limits
      author: author
      license: license
      colors: colors
    out: [page, picture, model_card, data_card, record]

  publish:
    label: catalog
    doc: STAC catalog of model, maps and tiles.
    run: catalog.cwl
    in:
      model: train/model
      classes: {source: [predict/classes], linkMerge: merge_nested}
      probabilities: {source: [predict/probabilities], linkMerge: merge_nested}
      tiles: preprocess/tiles
      scenes: search/items_each
      metrics: evaluate/metrics
      onnx: export/onnx
      title: title
      license: license
    out: [catalog, record]

  crate:
    label: crate
    doc: RO-Crate of the run (Provenance Run Crate).
    run: crate.cwl
    when: $(inputs.wanted)
    in:
      wanted: with_crate
      records:
        source:
          - search/record
          - fetch/record
          - preprocess/record
          - label/record
          - split/record
          - train/record
          - calibrate/record
          - predict/record
          - evaluate/record
          - cross_validate/split_record
          - cross_validate/train_record
          - cross_validate/calibrate_record
          - cross_validate/predict_record
          - cross_validate/evaluate_record
          - export/record
          - report/record
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
          - split/places
          - evaluate/metrics
          - export/onnx
          - export/check
          - report/page
          - report/picture
          - report/model_card
          - report/data_card
          - train/model
          - calibrate/calibration
          - predict/classes
          - predict/probabilities
          - cross_validate/metrics
          - cross_validate/model
        linkMerge: merge_flattened
        pickValue: all_non_null
      scenes: search/items_each
      workflow: workflow
      lock: lock
      engine: {default: cwl}
      title: title
      license: license
    out: [crate]

outputs:
  grid: {type: File, label: grid, doc: grid of the run, format: iana:application/json, outputSource: search/grid}
  selection: {type: File, label: selection, doc: "selected scenes, and the excluded ones with the reason", format: iana:application/json, outputSource: search/selection}
  tiles: {type: "Directory[]", label: tiles, doc: one Zarr store per scene, outputSource: preprocess/tiles}
  labels: {type: Directory, label: labels, doc: label store, outputSource: label/labels}
  chips: {type: File, label: split, doc: samples of each split, format: iana:application/json, outputSource: split/chips}
  statistics: {type: File, label: statistics, doc: band statistics of the training chips, format: iana:application/json, outputSource: split/statistics}
  split_map: {type: File, label: split map, doc: map of the splits, format: iana:image/png, outputSource: split/map}
  split_places: {type: File, label: split places, doc: chips as polygons, format: iana:application/geopackage+sqlite3, outputSource: split/places}
  model: {type: Directory, label: model, doc: trained model, outputSource: train/model}
  calibration: {type: File, label: calibration, doc: temperature of the probabilities, format: iana:application/json, outputSource: calibrate/calibration}
  onnx: {type: "File?", label: ONNX model, doc: the model in ONNX format, format: edam:format_2333, outputSource: export/onnx}
  classes: {type: File, label: map, doc: map of classes, format: iana:image/tiff, outputSource: predict/classes}
  probabilities: {type: File, label: probabilities, doc: map of probabilities, format: iana:image/tiff, outputSource: predict/probabilities}
  metrics: {type: File, label: metrics, doc: metrics of the map in the test areas, format: iana:application/json, outputSource: evaluate/metrics}
  page: {type: "File?", label: report, doc: the report as one HTML page, format: iana:text/html, outputSource: report/page}
  picture: {type: "File?", label: map picture, doc: the map as a PNG image, format: iana:image/png, outputSource: report/picture}
  model_card: {type: "File?", label: model card, doc: model card in Markdown, format: iana:text/markdown, outputSource: report/model_card}
  data_card: {type: "File?", label: data card, doc: data card in Markdown, format: iana:text/markdown, outputSource: report/data_card}
  stac: {type: Directory, label: STAC catalog, doc: "model, maps and tiles", outputSource: publish/catalog}
  run_crate: {type: "Directory?", label: crate, doc: Provenance Run Crate, outputSource: crate/crate}
  fold_metrics: {type: "File[]", label: fold metrics, doc: metrics of each fold, format: iana:application/json, outputSource: cross_validate/metrics}
  fold_models: {type: "Directory[]", label: fold models, doc: trained model of each fold, outputSource: cross_validate/model}
