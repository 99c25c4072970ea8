# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe label
doc: Put labels onto the grid, as class numbers or as values of a quantity, and a mask of where they hold.
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
- label
inputs:
  grid:
    type: File
    label: grid
    doc: grid that the run shares
    format: iana:application/json
    inputBinding:
      prefix: --grid
  labels_name:
    type: string
    label: labels
    doc: class numbers or values, and valid mask
    default: labels.zarr
    inputBinding:
      prefix: --labels
  source:
    type:
    - 'null'
    - File
    label: source
    doc: raster or vector file of the labels
    inputBinding:
      prefix: --source
  scene:
    type:
    - 'null'
    - Directory
    label: scene
    doc: scene that has the labels as an asset
    inputBinding:
      prefix: --scene
  asset:
    type:
    - 'null'
    - string
    label: asset
    doc: asset of each scene that holds its labels
    inputBinding:
      prefix: --asset
  classes:
    type:
      type: array
      items: string
    label: classes
    doc: class names; their order gives the class numbers
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
    doc: edges that cut a continuous raster into the classes
    default: []
    inputBinding:
      prefix: --bins
  codes:
    type:
      type: array
      items: int
    label: codes
    doc: source value of each class; 0, 1, … if not given
    default: []
    inputBinding:
      prefix: --codes
  values:
    type:
      type: array
      items: string
    label: values
    doc: 'class=value for each value of the source, several for one class: town=1 town=2; =3 is no label'
    default: []
    inputBinding:
      prefix: --values
  measure:
    type:
    - 'null'
    - string
    label: measure
    doc: 'name of what the labels measure: they stay numbers, for train.task regression; no classes'
    inputBinding:
      prefix: --measure
  unit:
    type: string
    label: unit
    doc: unit of what the labels measure
    default: ''
    inputBinding:
      prefix: --unit
  ignore:
    type:
      type: array
      items: int
    label: ignore
    doc: source values that are no label
    default: []
    inputBinding:
      prefix: --ignore
  attribute:
    type: string
    label: attribute
    doc: vector attribute that holds the class, or the number
    default: class
    inputBinding:
      prefix: --attribute
  layer:
    type:
    - 'null'
    - string
    label: layer
    doc: layer of a vector file that has several
    inputBinding:
      prefix: --layer
  overlap:
    type: string
    label: overlap
    doc: 'where shapes that disagree overlap: no label, or the last or first of the file (invalid or last or first)'
    default: invalid
    inputBinding:
      prefix: --overlap
  all_touched:
    type: boolean
    label: all touched
    doc: shapes take all pixels they touch, not only those whose centre they hold
    default: false
    inputBinding:
      prefix: --all-touched
  resampling:
    type: string
    label: resampling
    doc: 'for label rasters: nearest or mode of classes; nearest, bilinear or average of a measure (nearest or mode
      or bilinear or average)'
    default: nearest
    inputBinding:
      prefix: --resampling
  chunk:
    type: int
    label: chunk
    doc: edge of a chunk in pixels
    default: 256
    inputBinding:
      prefix: --chunk
  shard:
    type: int
    label: shard
    doc: edge of a shard in pixels
    default: 4096
    inputBinding:
      prefix: --shard
outputs:
  labels:
    type: Directory
    label: labels
    doc: class numbers or values, and valid mask
    outputBinding:
      glob: $(inputs.labels_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.labels_name).run.json
