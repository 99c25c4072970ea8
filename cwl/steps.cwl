# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe cwl steps
doc: Decide which steps the settings need.
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
- steps
inputs:
  label_asset:
    type:
    - 'null'
    - string
    label: asset
    doc: asset of each scene that holds its labels, instead of source
    inputBinding:
      prefix: --label-asset
  composite_method:
    type: string
    label: method
    doc: 'how observations are combined: median of each band, or for all bands the observation nearest the middle
      of the period (middle), of highest NDVI (greenest) or of lowest blue (clearest); none: train on scenes (none
      or median or middle or greenest or clearest)'
    default: none
    inputBinding:
      prefix: --composite-method
  split_method:
    type: string
    label: method
    doc: 'random blocks; checkerboard, one colour for train; strips in the order train, val, test; temporal: scenes
      by date; group: whole groups; random: single chips, which leaks between neighbours and must be allowed (blocks
      or checkerboard or west-east or east-west or north-south or south-north or temporal or group or random)'
    default: blocks
    inputBinding:
      prefix: --split-method
  split_by:
    type: string
    label: by
    doc: 'group split: unit that is kept whole; a scene of a chip set is an image file, a tile is of MGRS or WRS-2,
      a polygon of the labels, whose pixels are masked in the chips of other splits, a column of the index of a
      chip set (scene or tile or region or polygon or column)'
    default: scene
    inputBinding:
      prefix: --split-by
  with_labels:
    type: boolean
    label: with labels
    doc: 'the run has labels: for a training, or for a test of a finished model''s map'
    inputBinding:
      prefix: --with-labels
outputs:
  label_file:
    type: boolean
    label: label file
    doc: one file has the labels of all scenes
  label_scenes:
    type: boolean
    label: label scenes
    doc: each scene has labels of its own
  composite:
    type: boolean
    label: composite
    doc: the model sees composites, not scenes
  mosaic:
    type: boolean
    label: mosaic
    doc: all images have one map
  images:
    type: boolean
    label: images
    doc: each image has a map of its own
