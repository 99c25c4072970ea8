# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe choose
doc: Reduce several trainings to the best of trials, the trials that continue at a rung, or one model, their mean.
intent:
- edam:operation_2424
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
    - entryname: models.list.json
      entry: '$(inputs.models)

        '
    - entryname: classes.list.json
      entry: '$(inputs.classes)

        '
    - entryname: tiles.list.json
      entry: '$(inputs.tiles)

        '
    - entryname: labels.list.json
      entry: '$(inputs.labels)

        '
    - entryname: rungs.list.json
      entry: '$(inputs.rungs)

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
- choose
arguments:
- --models
- '@models.list.json'
- --classes
- '@classes.list.json'
- --tiles
- '@tiles.list.json'
- --labels
- '@labels.list.json'
- --rungs
- '@rungs.list.json'
inputs:
  models:
    type:
      type: array
      items:
      - 'null'
      - Directory
      - type: array
        items:
        - 'null'
        - Directory
    label: models
    doc: model folders of trials or members
  classes:
    type:
      type: array
      items:
      - 'null'
      - File
      - type: array
        items:
        - 'null'
        - File
    label: classes
    doc: maps, as many for each model, in their order
    format: iana:image/tiff
    default: []
  tiles:
    type:
      type: array
      items: Directory
    label: tiles
    doc: tile stores that were mapped
    default: []
  labels:
    type:
      type: array
      items: Directory
    label: labels
    doc: label store for all scenes, or one per scene
    default: []
  chips:
    type:
    - 'null'
    - File
    label: chips
    doc: split file, with validation places
    format: iana:application/json
    inputBinding:
      prefix: --chips
  model_name:
    type:
    - 'null'
    - string
    label: model
    doc: model folder, with trials.json of the best
    inputBinding:
      prefix: --model
  leaderboard_name:
    type:
    - 'null'
    - string
    label: leaderboard
    doc: scores of trials
    inputBinding:
      prefix: --leaderboard
  page_name:
    type:
    - 'null'
    - string
    label: page
    doc: leaderboard as one HTML page
    inputBinding:
      prefix: --page
  rung_name:
    type:
    - 'null'
    - string
    label: rung
    doc: trials that continue
    inputBinding:
      prefix: --rung
  reducer:
    type: string
    label: reducer
    doc: 'what is made of them: the best trial, a rung of those that continue, or an ensemble (best or halving or
      mean)'
    default: best
    inputBinding:
      prefix: --reducer
  score:
    type:
    - 'null'
    - string
    label: score
    doc: 'score that ranks the trials; lower is better for rmse, mae and hamming_loss (default: miou; f1_macro for
      multilabel, rmse for regression) (accuracy or miou or f1_macro or kappa or f1_micro or subset_accuracy or
      hamming_loss or rmse or mae or r2)'
    inputBinding:
      prefix: --score
  rungs:
    type:
      type: array
      items: File
    label: rungs
    doc: rungs of the trials; what they stopped is not chosen
    format: iana:application/json
    default: []
  count:
    type:
    - 'null'
    - int
    label: count
    doc: number of trials that continue
    inputBinding:
      prefix: --count
  previous:
    type:
    - 'null'
    - File
    label: previous
    doc: rung before this one; only trials that it promoted continue
    format: iana:application/json
    inputBinding:
      prefix: --previous
  mem_mb:
    type: int
    label: memory
    doc: memory of the job in MB
    default: 3000
  timelimit_s:
    type: int
    label: time limit
    doc: seconds after which the job is ended
    default: 5400
outputs:
  model:
    type:
    - 'null'
    - Directory
    label: model
    doc: model folder, with trials.json of the best
    outputBinding:
      glob: $(inputs.model_name)
  leaderboard:
    type:
    - 'null'
    - File
    format: iana:application/json
    label: leaderboard
    doc: scores of trials
    outputBinding:
      glob: $(inputs.leaderboard_name)
  page:
    type:
    - 'null'
    - File
    format: iana:text/html
    label: page
    doc: leaderboard as one HTML page
    outputBinding:
      glob: $(inputs.page_name)
  rung:
    type:
    - 'null'
    - File
    format: iana:application/json
    label: rung
    doc: trials that continue
    outputBinding:
      glob: $(inputs.rung_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob:
      - $(inputs.model_name).run.json
      - $(inputs.leaderboard_name).run.json
      - $(inputs.page_name).run.json
      - $(inputs.rung_name).run.json
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
