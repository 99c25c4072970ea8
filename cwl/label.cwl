# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe label
doc: Put labels onto the grid, as class numbers or as values of a quantity, with their valid mask.
intent:
- edam:operation_0226
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
- label
arguments: []
inputs:
  grid:
    type: File
    label: grid
    doc: grid of the run
    format: iana:application/json
    inputBinding:
      prefix: --grid
  labels_name:
    type: string
    label: labels
    doc: 'label store: class numbers or continuous values, and valid mask'
    default: labels.zarr
    inputBinding:
      prefix: --labels
  source:
    type:
    - 'null'
    - File
    label: source
    doc: raster or vector file with the labels of all scenes
    inputBinding:
      prefix: --source
  before:
    type:
    - 'null'
    - File
    label: before
    doc: 'change: raster or vector file with the labels of an earlier date, in the same classes; labels become from-to
      classes'
    inputBinding:
      prefix: --before
  scene:
    type:
    - 'null'
    - Directory
    label: scene
    doc: scene whose asset holds its labels
    inputBinding:
      prefix: --scene
  asset:
    type:
    - 'null'
    - string
    label: asset
    doc: asset of each scene that holds its labels, instead of source
    inputBinding:
      prefix: --asset
  classes:
    type:
      type: array
      items: string
    label: classes
    doc: class names, in the order of the class numbers 0, 1, …
    default:
    - non-forest
    - forest
    inputBinding:
      prefix: --classes
  bins:
    type:
      type: array
      items: double
    label: bins
    doc: edges between the classes of a continuous raster, in physical units
    default: []
    inputBinding:
      prefix: --bins
  codes:
    type:
      type: array
      items: int
    label: codes
    doc: 'source value of each class (default: 0, 1, …, if the raster has no other value)'
    default: []
    inputBinding:
      prefix: --codes
  values:
    type:
      type: array
      items: string
    label: values
    doc: 'class=value for each source value, also several per class: town=1 town=2; =3 means unlabelled'
    default: []
    inputBinding:
      prefix: --values
  measure:
    type:
    - 'null'
    - string
    label: measure
    doc: quantity of continuous labels, for train.task regression; without it labels are classes
    inputBinding:
      prefix: --measure
  unit:
    type: string
    label: unit
    doc: unit of the quantity
    default: ''
    inputBinding:
      prefix: --unit
  ignore:
    type:
      type: array
      items: int
    label: ignore
    doc: source values that mean unlabelled
    default: []
    inputBinding:
      prefix: --ignore
  attribute:
    type: string
    label: attribute
    doc: attribute of a vector file with the class, or with the value of the quantity
    default: class
    inputBinding:
      prefix: --attribute
  layer:
    type:
    - 'null'
    - string
    label: layer
    doc: layer of a vector file with several layers
    inputBinding:
      prefix: --layer
  dates:
    type:
    - 'null'
    - string
    label: dates
    doc: 'date or interval, as in search.datetime, of the features of a vector file that count: by its column date,
      or start_date and end_date, or by those that are named, as in seen=2019 and first,last=2019'
    inputBinding:
      prefix: --dates
  overlap:
    type: string
    label: overlap
    doc: 'where shapes of different labels overlap: unlabelled, or last or first in the file (invalid or last or
      first)'
    default: invalid
    inputBinding:
      prefix: --overlap
  all_touched:
    type: boolean
    label: all touched
    doc: rasterise shapes to all pixels they touch, not only to contained centres
    default: false
    inputBinding:
      prefix: --all-touched
  resampling:
    type: string
    label: resampling
    doc: 'resampling of label rasters: nearest or mode for classes; nearest, bilinear, cubic or average for a measure
      and before bins; auto: average if such a raster is finer than the grid, else nearest (auto or nearest or mode
      or bilinear or cubic or average)'
    default: auto
    inputBinding:
      prefix: --resampling
  chunk:
    type: int
    label: chunk
    doc: edge of a chunk, the read unit, in pixels
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
  labels:
    type: Directory
    label: labels
    doc: 'label store: class numbers or continuous values, and valid mask'
    outputBinding:
      glob: $(inputs.labels_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.labels_name).run.json
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
