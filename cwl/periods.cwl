# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe cwl periods
doc: Group the tiles of the scenes by the period of their composite.
intent:
- edam:operation_2409
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
    ramMin: 1000
    ramMax: 1000
  ToolTimeLimit:
    timelimit: 600
  LoadListingRequirement:
    loadListing: no_listing
  EnvVarRequirement:
    envDef:
      EOPIPE_VERSION: 0.1.0
  InitialWorkDirRequirement:
    listing:
    - entryname: tiles.list.json
      entry: '$(inputs.tiles)

        '
  WorkReuse:
    enableReuse: false
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
- cwl
- periods
inputs:
  items:
    type: Directory
    label: items
    doc: frozen STAC Items of the run
    inputBinding:
      prefix: --items
  tiles:
    type:
      type: array
      items: Directory
    label: tiles
    doc: tile stores of the scenes of one period
  period:
    type: string
    label: period
    doc: length of a period; there is one composite per period (all or year or season or month)
    default: all
    inputBinding:
      prefix: --period
  stack:
    type: string
    label: stack
    doc: stack these parts of a period as separate bands, e.g. red_JJA; of all time also years, e.g. red_2019 (none
      or year or season or month)
    default: none
    inputBinding:
      prefix: --stack
  parts:
    type:
      type: array
      items: string
    label: parts
    doc: 'parts to stack, e.g. 2017 2021, MAM JJA or 05 06 (default: all parts with scenes)'
    default: []
    inputBinding:
      prefix: --parts
outputs:
  groups:
    type:
      type: array
      items:
        type: array
        items: Directory
    label: groups
    doc: tile stores of the scenes of each period
  names:
    type:
      type: array
      items: string
    label: names
    doc: name of the composite of each period
arguments:
- --tiles
- '@tiles.list.json'
