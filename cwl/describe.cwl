# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe describe
doc: Write the report of maps that a finished model made of scenes other than its training scenes, and a map sheet.
intent:
- edam:operation_0337
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
- describe
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
    type:
    - File
    - Directory
    label: model
    doc: 'trained model: its folder, its STAC Item model.json, or a STAC catalog with it'
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
  page_name:
    type: string
    label: page
    doc: 'report: one self-contained HTML page'
    default: report.html
    inputBinding:
      prefix: --page
  picture_name:
    type: string
    label: picture
    doc: map sheet with axes, legend and scale bar
    default: map.png
    inputBinding:
      prefix: --picture
  scenes:
    type:
      type: array
      items: File
    label: scenes
    doc: frozen STAC Items of the run
    format: iana:application/geo+json
    default: []
  metrics:
    type:
    - 'null'
    - File
    label: metrics
    doc: scores of the maps, where labels test them
    format: iana:application/json
    inputBinding:
      prefix: --metrics
  title:
    type: string
    label: title
    doc: title of page and map
    default: eopipe run
    inputBinding:
      prefix: --title
  attribution:
    type: string
    label: attribution
    doc: credit line of the data, on page and map
    default: ''
    inputBinding:
      prefix: --attribution
  colors:
    type:
      type: array
      items: string
    label: colors
    doc: 'colour of each class as #rrggbb; a colour-blind-safe palette if not given'
    default: []
    inputBinding:
      prefix: --colors
  author:
    type: string
    label: author
    doc: author to cite for the map
    default: ''
    inputBinding:
      prefix: --author
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
    default: 2000
  timelimit_s:
    type: int
    label: time limit
    doc: seconds after which the job is ended
    default: 5400
outputs:
  page:
    type: File
    format: iana:text/html
    label: page
    doc: 'report: one self-contained HTML page'
    outputBinding:
      glob: $(inputs.page_name)
  picture:
    type: File
    format: iana:image/png
    label: picture
    doc: map sheet with axes, legend and scale bar
    outputBinding:
      glob: $(inputs.picture_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.page_name).run.json
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
