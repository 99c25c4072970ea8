# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe import
doc: Pack chips that exist already, each with its own CRS and place, into tile and label stores with an index.
intent:
- edam:operation_3434
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
    coresMax: 2
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
- import
arguments: []
inputs:
  chip_set_name:
    type: string
    label: chip set
    doc: 'folder to write: tiles/, labels/ and the index chips.json'
    default: chips
    inputBinding:
      position: -1
  images:
    type:
    - 'null'
    - string
    label: images
    doc: pattern of the images with one *, such as 'S2/*_S2.tif'
    inputBinding:
      prefix: --images
  masks:
    type:
    - 'null'
    - string
    label: masks
    doc: pattern of the masks; * is the same text as in --images
    inputBinding:
      prefix: --masks
  root:
    type:
    - 'null'
    - Directory
    label: root
    doc: 'folder that patterns, and the paths of a list of windows, start from (default: the current one, or the
      list''s)'
    inputBinding:
      prefix: --root
  folders:
    type:
    - 'null'
    - Directory
    label: folders
    doc: folder with a folder of GeoTIFF chips for each class
    inputBinding:
      prefix: --folders
  windows:
    type:
    - 'null'
    - File
    label: windows
    doc: 'JSON list of windows: id, image, window, and mask or label'
    format: iana:application/json
    inputBinding:
      prefix: --windows
  classes:
    type:
      type: array
      items: string
    label: classes
    doc: class names, in the order of the class numbers 0, 1, …
    default: []
    inputBinding:
      prefix: --classes
  codes:
    type:
      type: array
      items: int
    label: codes
    doc: 'mask value of each class (default: 0, 1, …)'
    default: []
    inputBinding:
      prefix: --codes
  values:
    type:
      type: array
      items: string
    label: values
    doc: class=value for each mask value, also several per class
    default: []
    inputBinding:
      prefix: --values
  bins:
    type:
      type: array
      items: double
    label: bins
    doc: edges between the classes of a continuous mask
    default: []
    inputBinding:
      prefix: --bins
  ignore:
    type:
      type: array
      items: int
    label: ignore
    doc: mask values that mean unlabelled, such as -1
    default: []
    inputBinding:
      prefix: --ignore
  bands:
    type:
      type: array
      items: string
    label: bands
    doc: 'names of the bands (default: descriptions in the first file, else band_1, …)'
    default: []
    inputBinding:
      prefix: --bands
  nodata:
    type:
    - 'null'
    - double
    label: nodata
    doc: 'number that means nodata in an image (default: what the file states)'
    inputBinding:
      prefix: --nodata
  scale:
    type:
    - 'null'
    - double
    label: scale
    doc: 'physical value = stored * scale + offset (default: what the files state, else 1)'
    inputBinding:
      prefix: --scale
  offset:
    type:
    - 'null'
    - double
    label: offset
    doc: 'offset of physical values (default: what the files state, else 0)'
    inputBinding:
      prefix: --offset
  group:
    type: string
    label: group
    doc: 'regular expression: what it matches in the id of a chip is its group, for split'
    default: ''
    inputBinding:
      prefix: --group
  collection:
    type:
    - 'null'
    - string
    label: collection
    doc: 'name of the chip set in report, cards and crate (default: the folder''s)'
    inputBinding:
      prefix: --collection
  allow_folder:
    type:
      type: array
      items: string
    label: allow folder
    doc: folders outside of the chips' folder, or of the list of windows, to which its paths and links may lead
    default: []
    inputBinding:
      prefix: --allow-folder
  threads:
    type: int
    label: threads
    doc: rows of slots that are read at a time; the bytes do not depend on it
    default: 2
    inputBinding:
      prefix: --threads
  mem_mb:
    type: int
    label: memory
    doc: memory of the job in MB
    default: 3000
  timelimit_s:
    type: int
    label: time limit
    doc: seconds after which the job is ended
    default: 10800
outputs:
  chip_set:
    type: Directory
    label: chip_set
    doc: 'folder to write: tiles/, labels/ and the index chips.json'
    outputBinding:
      glob: $(inputs.chip_set_name)
  tiles:
    type: Directory[]
    label: tiles
    doc: stores in tiles/ of chip_set
    outputBinding:
      glob: $(inputs.chip_set_name)/tiles/*
  labels:
    type: Directory[]
    label: labels
    doc: stores in labels/ of chip_set
    outputBinding:
      glob: $(inputs.chip_set_name)/labels/*
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.chip_set_name).run.json
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
