# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe combine
doc: Combine models with other seeds, or of several kinds, into one whose prediction is the mean of theirs.
intent:
- edam:operation_3436
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
- combine
arguments:
- --models
- '@models.list.json'
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
    doc: model folders, one for each member of the ensemble
  model_name:
    type: string
    label: model
    doc: model folder of the ensemble
    default: model
    inputBinding:
      prefix: --model
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
  model:
    type: Directory
    label: model
    doc: model folder of the ensemble
    outputBinding:
      glob: $(inputs.model_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.model_name).run.json
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
