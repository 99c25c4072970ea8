# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe promote
doc: Name the best trials at a rung of successive halving; the trainings of the others are stopped there.
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
- promote
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
    doc: model folders of the trials, trained up to the same share of their steps
  rung_name:
    type: string
    label: rung
    doc: trials that continue, and the scores of all
    default: rung.json
    inputBinding:
      prefix: --rung
  count:
    type: int
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
    default: 1000
  timelimit_s:
    type: int
    label: time limit
    doc: seconds after which the job is ended
    default: 1800
outputs:
  rung:
    type: File
    format: iana:application/json
    label: rung
    doc: trials that continue, and the scores of all
    outputBinding:
      glob: $(inputs.rung_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.rung_name).run.json
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
