cwlVersion: v1.2
class: Workflow
$namespaces:
  edam: http://edamontology.org/
  s: https://schema.org/
  iana: https://www.iana.org/assignments/media-types/
label: eopipe fold
doc: One fold of a cross-validation, split, trained, mapped and evaluated; the name of every output contains the fold's number.
intent: [edam:operation_2426, edam:operation_2428]
s:license: https://spdx.org/licenses/Apache-2.0
s:author:
  - {s:name: The eopipe team, s:email: team@example.org, s:url: https://github.com/eopipe/eopipe}

requirements:
  MultipleInputFeatureRequirement: {}
  StepInputExpressionRequirement: {}

inputs:
  fold: {type: int, label: fold, doc: "fold used for testing, from 0"}
  folds: {type: int, label: folds, doc: "number of folds, at least 3"}
  tiles: {type: "Directory[]", label: tiles, doc: tile stores of all scenes}
  labels: {type: "Directory[]", label: labels, doc: "label store of all scenes, or one for each"}
  method: {type: string, label: split method, doc: "split method: how chips are assigned to train, val and test"}
  chip: {type: int, label: chip, doc: edge of a chip in pixels}
  stride: {type: "int?", label: stride, doc: step between chips in pixels}
  task: {type: string, label: task, doc: "segmentation, classification or regression", default: segmentation}
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

steps:
  split:
    label: split
    doc: Chips of this fold are test, of the next fold val, all others train.
    run: split.cwl
    in:
      fold: fold
      folds: folds
      tiles: tiles
      labels: labels
      method: method
      chip: chip
      stride: stride
      chips_name: {valueFrom: split-fold-$(inputs.fold).json}
      statistics_name: {valueFrom: statistics-fold-$(inputs.fold).json}
      map_name: {valueFrom: split-fold-$(inputs.fold).png}
      places_name: {valueFrom: split-fold-$(inputs.fold).gpkg}
    out: [chips, statistics, record]

  train:
    label: train
    doc: Train with torchrun.
    run: train.cwl
    in:
      fold: fold
      tiles: tiles
      labels: labels
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
      model_name: {valueFrom: model-fold-$(inputs.fold)}
    out: [model, record]

  calibrate:
    label: calibrate
    doc: Temperature of the probabilities, fitted on the validation chips of this fold.
    run: calibrate.cwl
    in:
      fold: fold
      model: train/model
      allow_code: architecture
      tiles: tiles
      labels: labels
      chips: split/chips
      calibration_name: {valueFrom: calibration-fold-$(inputs.fold).json}
    out: [calibration, record]

  predict:
    label: predict
    doc: Map of classes, and map of their probabilities.
    run: predict.cwl
    in:
      fold: fold
      model: train/model
      allow_code: architecture
      tiles: tiles
      calibration: calibrate/calibration
      classes_name: {valueFrom: classes-fold-$(inputs.fold).tif}
      probabilities_name: {valueFrom: probabilities-fold-$(inputs.fold).tif}
    out: [classes, probabilities, record]

  evaluate:
    label: evaluate
    doc: Metrics on the test chips of this fold.
    run: evaluate.cwl
    in:
      fold: fold
      classes: {source: [predict/classes], linkMerge: merge_nested}
      probabilities: {source: [predict/probabilities], linkMerge: merge_nested}
      tiles: tiles
      labels: labels
      chips: split/chips
      metrics_name: {valueFrom: metrics-fold-$(inputs.fold).json}
    out: [metrics, record]

outputs:
  metrics: {type: File, label: metrics, doc: metrics of the fold, format: iana:application/json, outputSource: evaluate/metrics}
  model: {type: Directory, label: model, doc: trained model of the fold, outputSource: train/model}
  split_record: {type: File, label: record of split, doc: run record of the job, format: iana:application/json, outputSource: split/record}
  train_record: {type: File, label: record of train, doc: run record of the job, format: iana:application/json, outputSource: train/record}
  calibrate_record: {type: File, label: record of calibrate, doc: run record of the job, format: iana:application/json, outputSource: calibrate/record}
  predict_record: {type: File, label: record of predict, doc: run record of the job, format: iana:application/json, outputSource: predict/record}
  evaluate_record: {type: File, label: record of evaluate, doc: run record of the job, format: iana:application/json, outputSource: evaluate/record}
