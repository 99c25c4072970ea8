# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe crate
doc: Package a run as an RO-Crate, with the provenance of every result.
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
    - entryname: records.list.json
      entry: '$(inputs.records)

        '
    - entryname: payload.list.json
      entry: '$(inputs.payload)

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
- crate
arguments:
- --records
- '@records.list.json'
- --payload
- '@payload.list.json'
- --scenes
- '@scenes.list.json'
inputs:
  records:
    type:
      type: array
      items:
      - 'null'
      - File
      - type: array
        items:
        - 'null'
        - File
    label: records
    doc: run records of all jobs
    format: iana:application/json
  payload:
    type:
      type: array
      items:
      - File
      - Directory
    label: payload
    doc: 'files and folders that the crate contains: model, maps, metrics, report'
  workflow:
    type: File
    label: workflow
    doc: 'main workflow file: Snakefile or pipeline.cwl'
    inputBinding:
      prefix: --workflow
  crate_name:
    type: string
    label: crate
    doc: Provenance Run Crate
    default: crate
    inputBinding:
      prefix: --crate
  scenes:
    type:
      type: array
      items: File
    label: scenes
    doc: frozen STAC Items of the run; none of a chip set
    format: iana:application/geo+json
    default: []
  config:
    type:
    - 'null'
    - File
    label: config
    doc: config file of the run
    format: iana:application/yaml
    inputBinding:
      prefix: --config
  lock:
    type:
    - 'null'
    - File
    label: lock
    doc: pinned versions of the software, such as constraints.txt
    format: iana:text/plain
    inputBinding:
      prefix: --lock
  engine:
    type: string
    label: engine
    doc: workflow engine that ran the jobs (snakemake or cwl)
    default: snakemake
    inputBinding:
      prefix: --engine
  engine_version:
    type: string
    label: engine version
    doc: version of the workflow engine
    default: ''
    inputBinding:
      prefix: --engine-version
  title:
    type: string
    label: title
    doc: name of the crate
    default: eopipe run
    inputBinding:
      prefix: --title
  description:
    type: string
    label: description
    doc: description of the crate
    default: Satellite scenes to a trained, measured and mapped model, with the record of every job.
    inputBinding:
      prefix: --description
  license:
    type: string
    label: license
    doc: 'licence of crate, model, maps and tiles: SPDX identifier such as CC-BY-4.0, or URL; without it crate,
      cards and catalog say that none is stated'
    default: ''
    inputBinding:
      prefix: --license
  author:
    type: string
    label: author
    doc: name of the person who ran the pipeline
    default: ''
    inputBinding:
      prefix: --author
  orcid:
    type:
    - 'null'
    - string
    label: orcid
    doc: ORCID of the author
    inputBinding:
      prefix: --orcid
  organization:
    type: string
    label: organization
    doc: name of the author's organization, which is also the publisher
    default: ''
    inputBinding:
      prefix: --organization
  ror:
    type:
    - 'null'
    - string
    label: ror
    doc: ROR id of the organization
    inputBinding:
      prefix: --ror
  coauthors:
    type:
      type: array
      items: string
    label: coauthors
    doc: other authors, each as `Name ORCID; Organization`, the last two optional
    default: []
    inputBinding:
      prefix: --coauthors
  funding:
    type:
      type: array
      items: string
    label: funding
    doc: 'funders, each as `Name: grant` or `ROR URL: grant`, the grant optional'
    default: []
    inputBinding:
      prefix: --funding
  mem_mb:
    type: int
    label: memory
    doc: memory of the job in MB
    default: 1000
  timelimit_s:
    type: int
    label: time limit
    doc: seconds after which the job is ended
    default: 3780
outputs:
  crate:
    type: Directory
    label: crate
    doc: Provenance Run Crate
    outputBinding:
      glob: $(inputs.crate_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.crate_name).run.json
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
