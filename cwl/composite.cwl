# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe composite
doc: Composite the scenes of a period into one image, pixel by pixel.
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
    - entryname: tiles.list.json
      entry: '$(inputs.tiles)

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
- composite
arguments:
- --tiles
- '@tiles.list.json'
inputs:
  tiles:
    type:
      type: array
      items: Directory
    label: tiles
    doc: tile stores of the scenes of one period
  composite_name:
    type: string
    label: composite
    doc: tile store of the period, which replaces the stores of its scenes
    default: composite.zarr
    inputBinding:
      prefix: --composite
  method:
    type: string
    label: method
    doc: 'how observations are combined: median of each band, or for all bands the observation nearest the middle
      of the period (middle), of highest NDVI (greenest) or of lowest blue (clearest); none: train on scenes (none
      or median or middle or greenest or clearest)'
    default: none
    inputBinding:
      prefix: --method
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
  gaps:
    type: string
    label: gaps
    doc: 'a stacked season or month without an observation of a pixel: filled with the median of the parts that
      have one, where these are at least half; or the pixel is invalid, as it always is where a year lacks one (fill
      or invalid)'
    default: fill
    inputBinding:
      prefix: --gaps
  memory_mb:
    type: int
    label: memory mb
    doc: memory limit in MB for the pixels of all dates; larger grids are read block by block
    default: 512
    inputBinding:
      prefix: --memory-mb
  mem_mb:
    type: int
    label: memory
    doc: memory of the job in MB
    default: 1512
  timelimit_s:
    type: int
    label: time limit
    doc: seconds after which the job is ended
    default: 1980
outputs:
  composite:
    type: Directory
    label: composite
    doc: tile store of the period, which replaces the stores of its scenes
    outputBinding:
      glob: $(inputs.composite_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.composite_name).run.json
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
