# Derived from eopipe/stages by `eopipe sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe split
doc: Cut the grid into chips and split them by place, never at random.
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
- split
inputs:
  tiles:
    type:
      type: array
      items: Directory
    label: tiles
    doc: tile stores of all scenes
    inputBinding:
      prefix: --tiles
  labels:
    type:
      type: array
      items: Directory
    label: labels
    doc: label store of all scenes, or one for each
    inputBinding:
      prefix: --labels
  chips_name:
    type: string
    label: chips
    doc: samples of each split and the audit
    default: split.json
    inputBinding:
      prefix: --chips
  chip:
    type: int
    label: chip
    doc: edge of a chip in pixels
    default: 256
    inputBinding:
      prefix: --chip
  stride:
    type:
    - 'null'
    - int
    label: stride
    doc: step between chips in pixels; the chip's edge if not given
    inputBinding:
      prefix: --stride
  method:
    type: string
    label: method
    doc: random blocks, or strips in the order train, val, test (blocks or west-east or east-west or north-south
      or south-north)
    default: blocks
    inputBinding:
      prefix: --method
  fractions:
    type:
      type: array
      items: double
    label: fractions
    doc: share of train, val, test
    default:
    - 0.7
    - 0.15
    - 0.15
    inputBinding:
      prefix: --fractions
  block:
    type: int
    label: block
    doc: edge of a block in pixels
    default: 1024
    inputBinding:
      prefix: --block
  buffer:
    type: int
    label: buffer
    doc: least distance between splits in pixels
    default: 0
    inputBinding:
      prefix: --buffer
  folds:
    type: int
    label: folds
    doc: number of folds; 0 splits once by the fractions
    default: 0
    inputBinding:
      prefix: --folds
  fold:
    type: int
    label: fold
    doc: the fold that tests
    default: 0
    inputBinding:
      prefix: --fold
  min_valid:
    type: double
    label: min valid
    doc: least share of usable labelled pixels in a chip
    default: 0.5
    inputBinding:
      prefix: --min-valid
  seed:
    type: int
    label: seed
    doc: seed of the random blocks
    default: 0
    inputBinding:
      prefix: --seed
outputs:
  chips:
    type: File
    label: chips
    doc: samples of each split and the audit
    format: iana:application/json
    outputBinding:
      glob: $(inputs.chips_name)
  record:
    type: File
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.chips_name).run.json
