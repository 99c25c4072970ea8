# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe preprocess
doc: Warp one scene onto the grid and store it as a sharded Zarr store.
intent:
- edam:operation_3435
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
    coresMax: 4
    ramMin: 1500
    ramMax: 4500
  ToolTimeLimit:
    timelimit: 3600
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
- preprocess
inputs:
  scene:
    type: Directory
    label: scene
    doc: scene with its assets, as fetch makes it
    inputBinding:
      prefix: --scene
  grid:
    type: File
    label: grid
    doc: grid that the run shares
    format: iana:application/json
    inputBinding:
      prefix: --grid
  tiles_name:
    type: string
    label: tiles
    doc: 'the scene on the grid: image and valid mask'
    default: tiles.zarr
    inputBinding:
      prefix: --tiles
  bands:
    type:
      type: array
      items: string
    label: bands
    doc: band names, in channel order
    default:
    - blue
    - green
    - red
    - nir
    inputBinding:
      prefix: --bands
  mask:
    type: string
    label: mask
    doc: asset that tells what is usable, as scl; none masks only nodata
    default: scl
    inputBinding:
      prefix: --mask
  mask_as:
    type: string
    label: mask as
    doc: 'how the mask asset is read; auto: by its name (auto or classes or bits or probability)'
    default: auto
    inputBinding:
      prefix: --mask-as
  masked:
    type:
      type: array
      items: int
    label: masked
    doc: 'classes or bits of the mask asset that are not usable; none: the standard ones'
    default: []
    inputBinding:
      prefix: --masked
  max_probability:
    type: double
    label: max probability
    doc: percent of a mask that is a probability
    default: 40.0
    inputBinding:
      prefix: --max-probability
  dilate:
    type: int
    label: dilate
    doc: pixels of the grid to mask around what the mask excludes
    default: 0
    inputBinding:
      prefix: --dilate
  saturated:
    type:
    - 'null'
    - double
    label: saturated
    doc: stored number from which on a pixel is saturated, not usable
    inputBinding:
      prefix: --saturated
  decibel:
    type: boolean
    label: decibel
    doc: store radar power, which is linear, in dB
    default: false
    inputBinding:
      prefix: --decibel
  resampling:
    type: string
    label: resampling
    doc: for the bands; masks are never mixed (nearest or bilinear or cubic or average or mode)
    default: bilinear
    inputBinding:
      prefix: --resampling
  chunk:
    type: int
    label: chunk
    doc: edge of a chunk in pixels; one chip should touch few
    default: 256
    inputBinding:
      prefix: --chunk
  shard:
    type: int
    label: shard
    doc: edge of a shard (one file) in pixels
    default: 4096
    inputBinding:
      prefix: --shard
  codec:
    type: string
    label: codec
    doc: lz4 decodes fast, zstd is smaller (lz4 or zstd)
    default: lz4
    inputBinding:
      prefix: --codec
  threads:
    type: int
    label: threads
    doc: 'threads that decode, warp and code; 0: as many as there are cores'
    default: 0
    inputBinding:
      prefix: --threads
  max_files:
    type:
    - 'null'
    - int
    label: max files
    doc: most files that the store may take; one that needs more is refused
    inputBinding:
      prefix: --max-files
outputs:
  tiles:
    type: Directory
    label: tiles
    doc: 'the scene on the grid: image and valid mask'
    outputBinding:
      glob: $(inputs.tiles_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.tiles_name).run.json
