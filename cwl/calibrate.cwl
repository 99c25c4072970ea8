# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe calibrate
doc: Fit one temperature for the probabilities of a map on its validation places (temperature scaling).
intent:
- edam:operation_3435
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
baseCommand:
- eopipe
- calibrate
arguments:
- --tiles
- '@tiles.list.json'
- --labels
- '@labels.list.json'
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
  calibration_name:
    type: string
    label: calibration
    doc: temperature, and calibration in the validation places before and after it
    default: calibration.json
    inputBinding:
      prefix: --calibration
  halo:
    type:
    - 'null'
    - int
    label: halo
    doc: pixels read around each window, as in predict
    inputBinding:
      prefix: --halo
  window:
    type: int
    label: window
    doc: edge of a window in pixels, as in predict
    default: 512
    inputBinding:
      prefix: --window
  symmetries:
    type: int
    label: symmetries
    doc: 'predictions of each window whose mean is the map: 1, 2, 4 or 8, as in predict'
    default: 1
    inputBinding:
      prefix: --symmetries
  device:
    type: string
    label: device
    doc: device to compute on, as in predict (auto or cpu or cuda)
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
    doc: windows that are predicted at a time, as in predict
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
  calibration:
    type: File
    format: iana:application/json
    label: calibration
    doc: temperature, and calibration in the validation places before and after it
    outputBinding:
      glob: $(inputs.calibration_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.calibration_name).run.json
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
