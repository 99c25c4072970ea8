# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe fetch
doc: Fetch the assets of one scene and verify size and checksum.
intent:
- edam:operation_2422
s:license: https://spdx.org/licenses/Apache-2.0
s:author:
- s:name: The eopipe team
  s:email: team@example.org
  s:url: https://github.com/eopipe/eopipe
requirements:
  NetworkAccess:
    networkAccess: true
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
- fetch
arguments: []
inputs:
  item:
    type: File
    label: item
    doc: frozen STAC Item of the scene
    format: iana:application/geo+json
    inputBinding:
      prefix: --item
  scene_name:
    type: string
    label: scene
    doc: 'scene folder: the item and its verified assets'
    default: scene
    inputBinding:
      prefix: --scene
  catalog:
    type:
    - 'null'
    - File
    - Directory
    label: catalog
    doc: 'catalog on disk, for items with relative asset hrefs: its folder, or its STAC-GeoParquet file'
    inputBinding:
      prefix: --catalog
  grid:
    type:
    - 'null'
    - File
    label: grid
    doc: grid of the run; needed with windows
    format: iana:application/json
    inputBinding:
      prefix: --grid
  windows:
    type: boolean
    label: windows
    doc: 'fetch windows: only the blocks of (cloud-optimised) GeoTIFFs that the grid needs'
    default: false
    inputBinding:
      prefix: --windows
  workers:
    type: int
    label: workers
    doc: parallel downloads
    default: 4
    inputBinding:
      prefix: --workers
  deadline:
    type: double
    label: deadline
    doc: time limit for one asset with all its retries, in seconds
    default: 3600.0
    inputBinding:
      prefix: --deadline
  sign:
    type: string
    label: sign
    doc: service that signs asset URLs; auto chooses by host (auto or none or planetary-computer)
    default: auto
    inputBinding:
      prefix: --sign
  private_hosts:
    type:
      type: array
      items: string
    label: private hosts
    doc: hosts inside a private network that assets may be fetched from, as name or name:port (in a config also
      the host of search.url)
    default: []
    inputBinding:
      prefix: --private-hosts
  parts:
    type:
    - 'null'
    - string
    label: parts
    doc: folder of unfinished downloads, for resume; beside the scene if not given
    inputBinding:
      prefix: --parts
  mem_mb:
    type: int
    label: memory
    doc: memory of the job in MB
    default: 1000
  timelimit_s:
    type: int
    label: time limit
    doc: seconds after which the job is ended
    default: 10800
outputs:
  scene:
    type: Directory
    label: scene
    doc: 'scene folder: the item and its verified assets'
    outputBinding:
      glob: $(inputs.scene_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.scene_name).run.json
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
