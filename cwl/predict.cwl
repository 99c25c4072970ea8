# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe predict
doc: Predict a seamless map of classes and their probabilities, or of values, window by window.
intent:
- edam:operation_2423
s:license: https://spdx.org/licenses/Apache-2.0
s:author:
- s:name: The eopipe team
  s:email: team@example.org
  s:url: https://github.com/eopipe/eopipe
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
    doc: 'accepted differences of the tiles from the training tiles, each as ''kind: reason'', with a kind of pixel-size,
      unit, level'
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
- 9
- 70
