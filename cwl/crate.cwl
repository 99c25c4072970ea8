# Derived from eopipe/stages by `eopipe sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe crate
doc: Describe a run as a Provenance Run Crate.
s:license: https://spdx.org/licenses/Apache-2.0
requirements:
  NetworkAccess:
    networkAccess: false
  ResourceRequirement:
    coresMin: 1
    coresMax: 1
    ramMin: 1500
    ramMax: 3000
  LoadListingRequirement:
    loadListing: no_listing
  EnvVarRequirement:
    envDef:
      EOPIPE_VERSION: 0.1.0
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
inputs:
  records:
    type:
      type: array
      items: File
    label: records
    doc: run records of the stages
    inputBinding:
      prefix: --records
  payload:
    type:
      type: array
      items:
      - File
      - Directory
    label: payload
    doc: 'what the crate holds: model, maps, metrics, report'
    inputBinding:
      prefix: --payload
  scenes:
    type:
      type: array
      items: File
    label: scenes
    doc: frozen STAC Items of the run
    inputBinding:
      prefix: --scenes
  workflow:
    type: File
    label: workflow
    doc: main workflow file
    inputBinding:
      prefix: --workflow
  crate_name:
    type: string
    label: crate
    doc: Provenance Run Crate
    default: crate
    inputBinding:
      prefix: --crate
  config:
    type:
    - 'null'
    - File
    label: config
    doc: config file of the run
    inputBinding:
      prefix: --config
  lock:
    type:
    - 'null'
    - File
    label: lock
    doc: pinned Python packages
    inputBinding:
      prefix: --lock
  engine:
    type: string
    label: engine
    doc: engine that ran the stages (snakemake or cwl)
    default: snakemake
    inputBinding:
      prefix: --engine
  title:
    type: string
    label: title
    doc: name of the crate
    default: eopipe run
    inputBinding:
      prefix: --title
outputs:
  crate:
    type: Directory
    label: crate
    doc: Provenance Run Crate
    outputBinding:
      glob: $(inputs.crate_name)
  record:
    type: File
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.crate_name).run.json
