# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe preprocess
doc: Resample one scene onto the grid and write it as a sharded Zarr store.
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
    ramMin: $(inputs.mem_mb)
    ramMax: $(inputs.mem_mb)
  ToolTimeLimit:
    timelimit: $(inputs.timelimit_s)
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
arguments: []
inputs:
  scene:
    type: Directory
    label: scene
    doc: scene with its assets, from fetch
    inputBinding:
      prefix: --scene
  grid:
    type: File
    label: grid
    doc: grid of the run
    format: iana:application/json
    inputBinding:
      prefix: --grid
  tiles_name:
    type: string
    label: tiles
    doc: 'tile store of the scene on the grid: image and valid mask'
    default: tiles.zarr
    inputBinding:
      prefix: --tiles
  bands:
    type:
      type: array
      items: string
    label: bands
    doc: band names, in channel order; visual#2 is the second band of an asset
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
    doc: 'mask asset, e.g. scl: which pixels are usable; none masks only nodata'
    default: scl
    inputBinding:
      prefix: --mask
  mask_as:
    type: string
    label: mask as
    doc: 'kind of the mask asset; auto: known from its name (auto or classes or bits or probability)'
    default: auto
    inputBinding:
      prefix: --mask-as
  masked:
    type:
      type: array
      items: int
    label: masked
    doc: 'classes or bits of the mask asset that are masked (default: the standard ones)'
    default: []
    inputBinding:
      prefix: --masked
  max_probability:
    type: double
    label: max probability
    doc: cloud probability in percent above which pixels are masked
    default: 40.0
    inputBinding:
      prefix: --max-probability
  dilate:
    type: int
    label: dilate
    doc: 'mask dilation: also mask this many grid pixels around masked ones'
    default: 0
    inputBinding:
      prefix: --dilate
  saturated:
    type:
    - 'null'
    - double
    label: saturated
    doc: stored value at or above which a pixel is saturated, and masked
    inputBinding:
      prefix: --saturated
  offset:
    type:
    - 'null'
    - double
    label: offset
    doc: 'offset of reflectance where neither item nor product state it: -0.1 for Sentinel-2 since processing baseline
      04.00, 0 before or where it was removed'
    inputBinding:
      prefix: --offset
  decibel:
    type: boolean
    label: decibel
    doc: convert linear radar power to dB
    default: false
    inputBinding:
      prefix: --decibel
  resampling:
    type: string
    label: resampling
    doc: resampling kernel of the bands; masks use nearest (nearest or bilinear or cubic or average or mode)
    default: bilinear
    inputBinding:
      prefix: --resampling
  on_bad:
    type: string
    label: on bad
    doc: 'bad data of a scene, such as a missing band, or a file that is refused: stop the run, or leave_out the
      scene, with the reason in log, split, report and cards (stop or leave_out)'
    default: stop
    inputBinding:
      prefix: --on-bad
  chunk:
    type: int
    label: chunk
    doc: edge of a chunk, the read unit, in pixels; about the chip size
    default: 256
    inputBinding:
      prefix: --chunk
  shard:
    type: int
    label: shard
    doc: edge of a shard, one file, in pixels
    default: 4096
    inputBinding:
      prefix: --shard
  codec:
    type: string
    label: codec
    doc: 'compression codec: lz4 decodes faster, zstd is smaller (lz4 or zstd)'
    default: lz4
    inputBinding:
      prefix: --codec
  threads:
    type: int
    label: threads
    doc: 'threads that decode, resample and encode; 0: one per core'
    default: 0
    inputBinding:
      prefix: --threads
  mem_mb:
    type: int
    label: memory
    doc: memory of the job in MB
    default: 1500
  timelimit_s:
    type: int
    label: time limit
    doc: seconds after which the job is ended
    default: 3600
outputs:
  tiles:
    type: Directory
    label: tiles
    doc: 'tile store of the scene on the grid: image and valid mask'
    outputBinding:
      glob: $(inputs.tiles_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.tiles_name).run.json
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
