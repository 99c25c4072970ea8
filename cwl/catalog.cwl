# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe catalog
doc: Export model, maps and tiles as a self-contained STAC catalog.
intent:
- edam:operation_3431
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
  areas:
    type:
    - 'null'
    - File
    label: areas
    doc: areas of the classes, as estimate writes them
    format: iana:application/json
    inputBinding:
      prefix: --areas
  require:
    type:
      type: array
      items: string
    label: require
    doc: 'figures that the map must reach, or nothing is published (exit code 9): scores, gain over the baseline
      (lower end of its interval), area_error (standard error / area) and accuracies of areas'
    default: []
    inputBinding:
      prefix: --require
  title:
    type: string
    label: title
    doc: title of the catalog
    default: eopipe run
    inputBinding:
      prefix: --title
  license:
    type: string
    label: license
    doc: 'licence of model, maps and tiles: SPDX identifier such as CC-BY-4.0, or URL'
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
- 9
- 70
