# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe report
doc: Write the report of a run (scores, maps, training, data, provenance), a map sheet, a model card and a data
  card.
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
    - entryname: labels.list.json
      entry: '$(inputs.labels)

        '
    - entryname: scenes.list.json
      entry: '$(inputs.scenes)

        '
    - entryname: fold_metrics.list.json
      entry: '$(inputs.fold_metrics)

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
- report
arguments:
- --classes
- '@classes.list.json'
- --probabilities
- '@probabilities.list.json'
- --tiles
- '@tiles.list.json'
- --labels
- '@labels.list.json'
- --scenes
- '@scenes.list.json'
- --fold-metrics
- '@fold_metrics.list.json'
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
    doc: map sheet with axes, legend and scale bar; of a chip set its worst, median and best test chips
    default: map.png
    inputBinding:
      prefix: --picture
  metrics:
    type:
    - 'null'
    - File
    label: metrics
    doc: scores of the maps, as evaluate writes them
    format: iana:application/json
    inputBinding:
      prefix: --metrics
  chips:
    type:
    - 'null'
    - File
    label: chips
    doc: split file of the training; a map of a finished model has none
    format: iana:application/json
    inputBinding:
      prefix: --chips
  labels:
    type:
      type: array
      items: Directory
    label: labels
    doc: 'label stores of the scores: one for all scenes, or one per scene'
    default: []
  model_card_name:
    type:
    - 'null'
    - string
    label: model card
    doc: model card of a training in the format of Hugging Face
    inputBinding:
      prefix: --model-card
  data_card_name:
    type:
    - 'null'
    - string
    label: data card
    doc: data card of a training in the format of Hugging Face
    inputBinding:
      prefix: --data-card
  status_name:
    type:
    - 'null'
    - string
    label: status
    doc: 'of a finished model''s map: areas, missing classes, and inputs that are unlike the training inputs'
    inputBinding:
      prefix: --status
  scenes:
    type:
      type: array
      items: File
    label: scenes
    doc: frozen STAC Items of the run; none of a chip set
    format: iana:application/geo+json
    default: []
  fold_metrics:
    type:
      type: array
      items: File
    label: fold metrics
    doc: metrics files of the folds of a cross-validation
    format: iana:application/json
    default: []
  areas:
    type:
    - 'null'
    - File
    label: areas
    doc: areas of the classes, as estimate writes them
    format: iana:application/json
    inputBinding:
      prefix: --areas
  title:
    type: string
    label: title
    doc: title of page, map, cards, catalog and crate; of a chip set its name, if not given
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
  use:
    type: string
    label: use
    doc: intended use of the model, for the model card
    default: ''
    inputBinding:
      prefix: --use
  limits:
    type:
      type: array
      items: string
    label: limits
    doc: known limits and unsuitable uses, for the model card
    default: []
    inputBinding:
      prefix: --limits
  author:
    type: string
    label: author
    doc: authors to cite for the model
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
  colors:
    type:
      type: array
      items: string
    label: colors
    doc: 'colour of each class as #rrggbb; a colour-blind-safe palette if not given'
    default: []
    inputBinding:
      prefix: --colors
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
    doc: map sheet with axes, legend and scale bar; of a chip set its worst, median and best test chips
    outputBinding:
      glob: $(inputs.picture_name)
  model_card:
    type:
    - 'null'
    - File
    format: iana:text/markdown
    label: model_card
    doc: model card of a training in the format of Hugging Face
    outputBinding:
      glob: $(inputs.model_card_name)
  data_card:
    type:
    - 'null'
    - File
    format: iana:text/markdown
    label: data_card
    doc: data card of a training in the format of Hugging Face
    outputBinding:
      glob: $(inputs.data_card_name)
  status:
    type:
    - 'null'
    - File
    format: iana:application/json
    label: status
    doc: 'of a finished model''s map: areas, missing classes, and inputs that are unlike the training inputs'
    outputBinding:
      glob: $(inputs.status_name)
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
- 9
- 70
