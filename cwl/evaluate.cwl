# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe evaluate
doc: Score the map against the labels in the test areas, beside the majority class and other baselines.
intent:
- edam:operation_2238
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
    doc: 'maps of classes or values: one mosaic, or one per scene in the order of the tiles; where tiles have several
      cells, one of each cell in any order'
    format: iana:image/tiff
  tiles:
    type:
      type: array
      items: Directory
    label: tiles
    doc: tile stores that the baselines are trained on
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
- 9
- 70
