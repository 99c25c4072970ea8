# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe cwl images
doc: List the cells of each image.
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
- images
inputs:
  tiles:
    type:
      type: array
      items: Directory
    label: tiles
    doc: tile stores of the scenes of one period
outputs:
  image_stores:
    type: Directory[]
    label: image stores
    doc: tile store of each of the image cells
  image_cells:
    type: string[]
    label: image cells
    doc: each cell of each image; an empty text for the only one
  image_endings:
    type: string[]
    label: image endings
    doc: what the name of the map of an image in a cell ends with
arguments:
- --tiles
- '@tiles.list.json'
