# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe estimate
doc: Estimate the area of each class in hectares from a labelled probability sample, and the accuracy of the map.
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
- estimate
arguments:
- --classes
- '@classes.list.json'
inputs:
  classes:
    type:
      type: array
      items: File
    label: classes
    doc: 'maps of classes or values: one mosaic, or one of each cell'
    format: iana:image/tiff
  areas_name:
    type: string
    label: areas
    doc: areas with standard errors, accuracies, error matrix
    default: areas.json
    inputBinding:
      prefix: --areas
  page_name:
    type: string
    label: page
    doc: the same as one HTML page
    default: areas.html
    inputBinding:
      prefix: --page
  sample:
    type:
      type: array
      items: File
    label: sample
    doc: 'labelled files of a sample, as eopipe sample writes it: one for each interpreter'
    default: []
    inputBinding:
      prefix: --sample
  sample_design:
    type:
    - 'null'
    - File
    label: sample design
    doc: design of the sample, where the labels are a CSV apart from sample.json
    inputBinding:
      prefix: --sample-design
  label_column:
    type: string
    label: label column
    doc: column of the labels in the files of the sample
    default: label
    inputBinding:
      prefix: --label-column
  mem_mb:
    type: int
    label: memory
    doc: memory of the job in MB
    default: 1000
  timelimit_s:
    type: int
    label: time limit
    doc: seconds after which the job is ended
    default: 21600
outputs:
  areas:
    type: File
    format: iana:application/json
    label: areas
    doc: areas with standard errors, accuracies, error matrix
    outputBinding:
      glob: $(inputs.areas_name)
  page:
    type: File
    format: iana:text/html
    label: page
    doc: the same as one HTML page
    outputBinding:
      glob: $(inputs.page_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.areas_name).run.json
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
