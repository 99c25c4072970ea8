cwlVersion: v1.2
class: Workflow
$namespaces:
  edam: http://edamontology.org/
  s: https://schema.org/
  iana: https://www.iana.org/assignments/media-types/
label: eopipe
doc: Satellite scenes to a trained, measured, mapped and citable model; labels are one file for all scenes.
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
  ids: {type: "string[]", label: scenes, doc: "only these scenes, by id", default: []}
  datetime: {type: "string?", label: dates, doc: date or interval}
  assets: {type: "string[]", label: assets, doc: assets that every scene must have}
  bands: {type: "string[]", label: bands, doc: "band names, in channel order"}
  mask: {type: string, label: mask, doc: asset that classifies pixels}
  chunk: {type: int, label: chunk, doc: edge of a chunk in pixels}
  shard: {type: int, label: shard, doc: edge of a shard in pixels}
  source: {type: File, label: labels, doc: raster or vector file of the labels}
  label_classes: {type: "string[]", label: class names, doc: their order gives the class numbers}
  bins: {type: "double[]", label: bins, doc: edges that cut a continuous raster into the classes, default: []}
  measure: {type: "string?", label: measure, doc: what the labels measure; they are numbers then}
  unit: {type: string, label: unit, doc: unit of what the labels measure, default: ""}
  task: {type: string, label: task, doc: "segmentation, classification or regression", default: segmentation}
  method: {type: string, label: split method, doc: how places are dealt out}
  fractions: {type: "double[]", label: fractions, doc: "share of train, val, test"}
  chip: {type: int, label: chip, doc: edge of a chip in pixels}
  stride: {type: "int?", label: stride, doc: step between chips in pixels}
  folds: {type: int, label: folds, doc: "parts of the places for a cross-validation; 0: none", default: 0}
  fold: {type: "int[]", label: fold numbers, doc: "parts that test in turn, as [0, 1, 2] of 3 folds", default: []}
  processes: {type: int, label: processes, doc: torchrun workers, default: 1}
  width: {type: int, label: width, doc: channels of the first level of the model, default: 16}
  epochs: {type: int, label: epochs, doc: passes over the training chips}
  batch: {type: int, label: batch, doc: chips of a step}
  learning_rate: {type: double, label: learning rate, doc: highest learning rate}
  title: {type: string, label: title, doc: headline of the report and name of the crate}
  attribution: {type: string, label: attribution, doc: credit line of the data, default: ""}
  use: {type: string, label: intended use, doc: what the model is meant for, default: ""}
  limits: {type: "string[]", label: limits, doc: what the model must not be used for, default: []}
  author: {type: string, label: author, doc: who is to be cited for the model, default: ""}
  license: {type: string, label: licence, doc: licence of model and stores, default: ""}
  with_onnx: {type: boolean, label: with ONNX, doc: make the model as ONNX too, default: true}
  with_report: {type: boolean, label: with report, doc: make the page and the cards too, default: true}
  with_crate: {type: boolean, label: with crate, doc: make the Provenance Run Crate too, default: true}
  lock: {type: "File?", label: lock, doc: "pinned versions of the software, for the crate", format: iana:text/plain}
  workflow:
    type: File
    label: workflow
    doc: this file, for the crate
    default: {class: File, location: pipeline.cwl}

steps:
  search:
    label: search
    doc: Find scenes and freeze their list and the grid.
    run: search.cwl
    in: {catalog: catalog, area: area, ids: ids, datetime: datetime, assets: assets}
    out: [items_each, grid, selection, record]

  fetch:
    label: fetch
    doc: Bring the assets of each scene to disk.
    run: fetch.cwl
    scatter: item
    in:
      item: search/items_each
      catalog: catalog
      scene_name: {valueFrom: $(inputs.item.nameroot)}
    out: [scene, record]

  preprocess:
    label: preprocess
    doc: Each scene onto the grid.
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
    doc: Labels onto the grid.
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
    doc: Chips to train, val and test by place.
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
      processes: processes
      width: width
      epochs: epochs
      batch: batch
      learning_rate: learning_rate
    out: [model, record]

  predict:
    label: predict
    doc: A map of classes and one of their probabilities.
    run: predict.cwl
    in: {model: train/model, tiles: preprocess/tiles}
    out: [classes, probabilities, record]

  evaluate:
    label: evaluate
    doc: Scores where the model was never trained.
    run: evaluate.cwl
    in:
      classes: {source: [predict/classes], linkMerge: merge_nested}
      tiles: preprocess/tiles
      labels: {source: [label/labels], linkMerge: merge_nested}
      chips: split/chips
    out: [metrics, record]

  cross_validate:
    label: cross-validate
    doc: The same training on each fold of a cross-validation.
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
      processes: processes
      width: width
      epochs: epochs
      batch: batch
      learning_rate: learning_rate
    out: [metrics, model, split_record, train_record, predict_record, evaluate_record]

  export:
    label: export
    doc: The model as ONNX, compared with the model.
    run: export.cwl
    when: $(inputs.wanted)
    in:
      wanted: with_onnx
      model: train/model
      tiles: {source: preprocess/tiles, valueFrom: "$(self[0])"}
    out: [onnx, check, record]

  report:
    label: report
    doc: One page to read.
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
    out: [page, picture, model_card, data_card, record]

  publish:
    label: catalog
    doc: Model, maps and tiles as a STAC catalog.
    run: catalog.cwl
    in:
      model: train/model
      classes: {source: [predict/classes], linkMerge: merge_nested}
      probabilities: {source: [predict/probabilities], linkMerge: merge_nested}
      tiles: preprocess/tiles
      scenes: search/items_each
      metrics: evaluate/metrics
      title: title
    out: [catalog, record]

  crate:
    label: crate
    doc: The run as a Provenance Run Crate.
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
          - predict/record
          - evaluate/record
          - cross_validate/split_record
          - cross_validate/train_record
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
    out: [crate]

outputs:
  grid: {type: File, label: grid, doc: grid of the run, format: iana:application/json, outputSource: search/grid}
  selection: {type: File, label: selection, doc: scenes and what was left out, format: iana:application/json, outputSource: search/selection}
  tiles: {type: "Directory[]", label: tiles, doc: one Zarr store a scene, outputSource: preprocess/tiles}
  labels: {type: Directory, label: labels, doc: label store, outputSource: label/labels}
  chips: {type: File, label: split, doc: samples of each split, format: iana:application/json, outputSource: split/chips}
  statistics: {type: File, label: statistics, doc: bands of the training chips, format: iana:application/json, outputSource: split/statistics}
  split_map: {type: File, label: split map, doc: map of the splits, format: iana:image/png, outputSource: split/map}
  split_places: {type: File, label: split places, doc: chips as polygons, format: iana:application/geopackage+sqlite3, outputSource: split/places}
  model: {type: Directory, label: model, doc: trained model, outputSource: train/model}
  onnx: {type: "File?", label: ONNX model, doc: the model as ONNX, format: edam:format_2333, outputSource: export/onnx}
  classes: {type: File, label: map, doc: map of classes, format: iana:image/tiff, outputSource: predict/classes}
  probabilities: {type: File, label: probabilities, doc: map of probabilities, format: iana:image/tiff, outputSource: predict/probabilities}
  metrics: {type: File, label: metrics, doc: scores, format: iana:application/json, outputSource: evaluate/metrics}
  page: {type: "File?", label: report, doc: the page to read, format: iana:text/html, outputSource: report/page}
  picture: {type: "File?", label: map picture, doc: the map as PNG, format: iana:image/png, outputSource: report/picture}
  model_card: {type: "File?", label: model card, doc: what the model is, format: iana:text/markdown, outputSource: report/model_card}
  data_card: {type: "File?", label: data card, doc: what the data are, format: iana:text/markdown, outputSource: report/data_card}
  stac: {type: Directory, label: STAC catalog, doc: "model, maps and tiles", outputSource: publish/catalog}
  run_crate: {type: "Directory?", label: crate, doc: Provenance Run Crate, outputSource: crate/crate}
  fold_metrics: {type: "File[]", label: fold metrics, doc: scores of each fold, format: iana:application/json, outputSource: cross_validate/metrics}
  fold_models: {type: "Directory[]", label: fold models, doc: trained model of each fold, outputSource: cross_validate/model}
