# Derived from eopipe/stages by `eopipe sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe preprocess
doc: Warp one scene onto the grid and store it as a sharded Zarr store.
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
    doc: asset that classifies pixels, as scl; none masks only nodata
    default: scl
    inputBinding:
      prefix: --mask
  masked:
    type:
      type: array
      items: int
    label: masked
    doc: classes of the mask asset that are not usable
    default:
    - 0
    - 1
    - 3
    - 8
    - 9
    - 10
    - 11
    inputBinding:
      prefix: --masked
  resampling:
    type: string
    label: resampling
    doc: for continuous bands (nearest or bilinear or cubic or average)
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
    default: 2048
    inputBinding:
      prefix: --shard
  codec:
    type: string
    label: codec
    doc: lz4 decodes fast, zstd is smaller (lz4 or zstd)
    default: lz4
    inputBinding:
      prefix: --codec
outputs:
  tiles:
    type: Directory
    label: tiles
    doc: 'the scene on the grid: image and valid mask'
    outputBinding:
      glob: $(inputs.tiles_name)
  record:
    type: File
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.tiles_name).run.json
