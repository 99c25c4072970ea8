# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe cwl cells
doc: List the cells of the run.
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
- cells
inputs:
  grid:
    type: File
    label: grid
    doc: grid of the run
    format: iana:application/json
    inputBinding:
      prefix: --grid
  map_parts:
    type: int
    label: map parts
    doc: 'parts of each map, which jobs of their own make and another one joins; 1: none'
    default: 1
    inputBinding:
      prefix: --map-parts
outputs:
  cells:
    type: string[]
    label: cells
    doc: cells of the run; an empty text for the only one
  endings:
    type: string[]
    label: endings
    doc: what the names of the maps of the cells end with
  parts:
    type: string[]
    label: parts
    doc: parts of the maps of all cells, such as 3-of-16; none where a map is made as a whole
  part_cells:
    type: string[]
    label: part cells
    doc: the cell of each part
  part_endings:
    type: string[]
    label: part endings
    doc: what the names of its files end with
