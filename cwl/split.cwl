# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe split
doc: Cut the grid into chips, assign them to splits by place, date or group, and audit the splits for leakage.
intent:
- edam:operation_3359
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
    - entryname: labels.list.json
      entry: '$(inputs.labels)

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
- split
arguments:
- --tiles
- '@tiles.list.json'
- --labels
- '@labels.list.json'
inputs:
  tiles:
    type:
      type: array
      items: Directory
    label: tiles
    doc: tile stores of all scenes
  labels:
    type:
      type: array
      items: Directory
    label: labels
    doc: label store of all scenes, or one per scene
  chips_name:
    type: string
    label: chips
    doc: chips of each split, and the leakage audit
    default: split.json
    inputBinding:
      prefix: --chips
  statistics_name:
    type: string
    label: statistics
    doc: band statistics (mean, std, histogram) of the training chips
    default: statistics.json
    inputBinding:
      prefix: --statistics
  map_name:
    type: string
    label: map
    doc: map of the splits and their classes
    default: split.png
    inputBinding:
      prefix: --map
  outlines_name:
    type: string
    label: outlines
    doc: chips as polygons, with split, scene and classes
    default: split.gpkg
    inputBinding:
      prefix: --outlines
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
    doc: 'step between chips in pixels (default: the edge of a chip)'
    inputBinding:
      prefix: --stride
  method:
    type: string
    label: method
    doc: 'random blocks; checkerboard, one colour for train; strips in the order train, val, test; temporal: scenes
      by date; group: whole groups; random: single chips, which leaks between neighbours and must be allowed (blocks
      or checkerboard or west-east or east-west or north-south or south-north or temporal or group or random)'
    default: blocks
    inputBinding:
      prefix: --method
  fractions:
    type:
      type: array
      items: double
    label: fractions
    doc: fractions of train, val and test
    default:
    - 0.7
    - 0.15
    - 0.15
    inputBinding:
      prefix: --fractions
  block:
    type: int
    label: block
    doc: edge of a block, or of a square of the checkerboard, in pixels
    default: 1024
    inputBinding:
      prefix: --block
  buffer:
    type: int
    label: buffer
    doc: minimum distance between splits in pixels
    default: 0
    inputBinding:
      prefix: --buffer
  folds:
    type: int
    label: folds
    doc: 'number of cross-validation folds; 0: one split by the fractions'
    default: 0
    inputBinding:
      prefix: --folds
  fold:
    type: int
    label: fold
    doc: number of the test fold, from 0
    default: 0
    inputBinding:
      prefix: --fold
  dates:
    type:
      type: array
      items: string
    label: dates
    doc: 'temporal split: first day of val and of test, or of test only'
    default: []
    inputBinding:
      prefix: --dates
  by:
    type: string
    label: by
    doc: 'group split: unit that is kept whole; a scene of a chip set is an image file, a tile is of MGRS or WRS-2,
      a polygon of the labels, whose pixels are masked in the chips of other splits, a column of the index of a
      chip set (scene or tile or region or polygon or column)'
    default: scene
    inputBinding:
      prefix: --by
  val_groups:
    type:
      type: array
      items: string
    label: val groups
    doc: names of the validation groups
    default: []
    inputBinding:
      prefix: --val-groups
  test_groups:
    type:
      type: array
      items: string
    label: test groups
    doc: 'names of the test groups; all others train (default: groups at random)'
    default: []
    inputBinding:
      prefix: --test-groups
  regions:
    type:
    - 'null'
    - File
    label: regions
    doc: polygons of the regions of a group split
    inputBinding:
      prefix: --regions
  attribute:
    type: string
    label: attribute
    doc: attribute with the region of a polygon, or column of a chip set
    default: region
    inputBinding:
      prefix: --attribute
  block_km:
    type: double
    label: block km
    doc: edge in km of the equal-area blocks of a chip set (eopipe import)
    default: 50.0
    inputBinding:
      prefix: --block-km
  min_valid:
    type:
    - 'null'
    - double
    label: min valid
    doc: 'minimum fraction of valid, labelled pixels in a chip (default: 0.5; of polygons and points 0, any pixel)'
    inputBinding:
      prefix: --min-valid
  seed:
    type: int
    label: seed
    doc: seed of random assignments
    default: 0
    inputBinding:
      prefix: --seed
  allow:
    type:
      type: array
      items: string
    label: allow
    doc: 'accepted findings of the leakage audit, each as ''kind: reason'''
    default: []
    inputBinding:
      prefix: --allow
  mem_mb:
    type: int
    label: memory
    doc: memory of the job in MB
    default: 2000
  timelimit_s:
    type: int
    label: time limit
    doc: seconds after which the job is ended
    default: 19800
outputs:
  chips:
    type: File
    format: iana:application/json
    label: chips
    doc: chips of each split, and the leakage audit
    outputBinding:
      glob: $(inputs.chips_name)
  statistics:
    type: File
    format: iana:application/json
    label: statistics
    doc: band statistics (mean, std, histogram) of the training chips
    outputBinding:
      glob: $(inputs.statistics_name)
  map:
    type: File
    format: iana:image/png
    label: map
    doc: map of the splits and their classes
    outputBinding:
      glob: $(inputs.map_name)
  outlines:
    type: File
    format: iana:application/geopackage+sqlite3
    label: outlines
    doc: chips as polygons, with split, scene and classes
    outputBinding:
      glob: $(inputs.outlines_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.chips_name).run.json
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
