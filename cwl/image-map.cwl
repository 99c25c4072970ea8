# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: Workflow
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe image map
doc: The map of one image.
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
  image:
    type: Directory
    label: image
    doc: tile store of the image
  model:
    type: Directory
    label: model
    doc: trained model
  calibration:
    type:
    - 'null'
    - File
    label: calibration
    doc: temperature of the probabilities
    format: iana:application/json
  chips:
    type:
    - 'null'
    - File
    label: chips
    doc: split file, where places of it alone are mapped
    format: iana:application/json
  places:
    type:
    - 'null'
    - string
    label: places
    doc: places of the split file to map
  cell:
    type: string
    label: cell
    doc: cell to map; an empty text for the only one
  classes_name:
    type: string
    label: classes
    doc: name of the map of classes
  probabilities_name:
    type: string
    label: probabilities
    doc: name of the map of probabilities
  train_architecture:
    type: string
    label: train.architecture
    doc: 'model architecture: unet, convnext, temporal; forest, boosting or linear on pixels and their texture;
      or a class of your own or of a library as module:Class or file.py:Class'
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
  report_colors:
    type:
      type: array
      items: string
    label: report.colors
    doc: 'colour of each class as #rrggbb; a colour-blind-safe palette if not given'
    default: []
steps:
  predict:
    label: predict
    doc: Predict a seamless map of classes and their probabilities, or of values, window by window.
    run: predict.cwl
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
      tiles:
        source:
        - image
        linkMerge: merge_nested
      model: model
      calibration: calibration
      chips: chips
      places: places
      cell: cell
      classes_name: classes_name
      probabilities_name: probabilities_name
    out:
    - classes
    - probabilities
    - record
outputs:
  classes:
    type: File
    label: classes
    doc: map of classes
    format: iana:image/tiff
    outputSource: predict/classes
  probabilities:
    type: File
    label: probabilities
    doc: map of probabilities
    format: iana:image/tiff
    outputSource: predict/probabilities
  record:
    type: File
    label: record
    doc: run record of the job
    format: iana:application/json
    outputSource: predict/record
