# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe search
doc: Find scenes in a STAC catalog or API and freeze the list and the grid.
intent:
- edam:operation_0224
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
- search
arguments: []
inputs:
  items_name:
    type: string
    label: items
    doc: frozen STAC Items, one file per scene
    default: items
    inputBinding:
      prefix: --items
  grid_name:
    type: string
    label: grid
    doc: 'grid of the run: CRS, transform, shape; of several UTM zones their cells'
    default: grid.json
    inputBinding:
      prefix: --grid
  selection_name:
    type: string
    label: selection
    doc: digest of the item list; dropped scenes with the reason
    default: selection.json
    inputBinding:
      prefix: --selection
  catalog:
    type:
    - 'null'
    - File
    - Directory
    label: catalog
    doc: 'folder of a static STAC catalog, or STAC-GeoParquet: a file, or a folder of such files'
    inputBinding:
      prefix: --catalog
  area:
    type:
    - 'null'
    - File
    label: area
    doc: GeoJSON of the area of interest, in degrees
    inputBinding:
      prefix: --area
  url:
    type:
    - 'null'
    - string
    label: url
    doc: URL of a STAC API or of a static catalog
    inputBinding:
      prefix: --url
  collections:
    type:
      type: array
      items: string
    label: collections
    doc: STAC collections to search; all if empty
    default: []
    inputBinding:
      prefix: --collections
  bbox:
    type:
      type: array
      items: double
    label: bbox
    doc: 'bounding box: west south east north, in degrees'
    default: []
    inputBinding:
      prefix: --bbox
  datetime:
    type:
    - 'null'
    - string
    label: datetime
    doc: date or interval of acquisition, e.g. 2020-05-01/2020-09-30
    inputBinding:
      prefix: --datetime
  max_cloud:
    type: double
    label: max cloud
    doc: maximum cloud cover of a scene (eo:cloud_cover), in percent
    default: 100.0
    inputBinding:
      prefix: --max-cloud
  ids:
    type:
      type: array
      items: string
    label: ids
    doc: only these scenes, by id
    default: []
    inputBinding:
      prefix: --ids
  assets:
    type:
      type: array
      items: string
    label: assets
    doc: keys of the assets to fetch; every scene must have them
    default:
    - blue
    - green
    - red
    - nir
    - scl
    inputBinding:
      prefix: --assets
  on_missing:
    type: string
    label: on missing
    doc: 'scenes that lack one of the assets: fail and list them, or skip them (fail or skip)'
    default: fail
    inputBinding:
      prefix: --on-missing
  best:
    type:
    - 'null'
    - int
    label: best
    doc: 'number of least cloudy scenes to keep in each time window (default: all)'
    inputBinding:
      prefix: --best
  per:
    type: string
    label: per
    doc: time window that best applies to (all or year or month or week or day)
    default: all
    inputBinding:
      prefix: --per
  group:
    type: string
    label: group
    doc: 'what best counts: single scenes, or all scenes of a local solar day (UTC + 1 h per 15 degrees) together
      (scene or solar-day)'
    default: scene
    inputBinding:
      prefix: --group
  crs:
    type: string
    label: crs
    doc: 'CRS of the grid as EPSG:code; auto: the one of the scenes, or the UTM zone of the area; utm: cells, one
      for each UTM zone and distant part of the area'
    default: auto
    inputBinding:
      prefix: --crs
  resolution:
    type:
    - 'null'
    - double
    label: resolution
    doc: 'pixel size of the grid in units of the CRS (default: the finest of grid_assets)'
    inputBinding:
      prefix: --resolution
  grid_assets:
    type:
      type: array
      items: string
    label: grid assets
    doc: 'assets whose CRS and pixels the grid follows (default: all assets; in a config preprocess.bands, so that
      neither masks nor labels set the pixel size)'
    default: []
    inputBinding:
      prefix: --grid-assets
  deadline:
    type: double
    label: deadline
    doc: time limit for the whole search, in seconds
    default: 900.0
    inputBinding:
      prefix: --deadline
  mem_mb:
    type: int
    label: memory
    doc: memory of the job in MB
    default: 1000
  timelimit_s:
    type: int
    label: time limit
    doc: seconds after which the job is ended
    default: 1800
outputs:
  items:
    type: Directory
    label: items
    doc: frozen STAC Items, one file per scene
    outputBinding:
      glob: $(inputs.items_name)
  items_each:
    type: File[]
    label: items, one by one
    doc: for a scatter
    format: iana:application/geo+json
    outputBinding:
      glob: $(inputs.items_name)/*.geojson
  grid:
    type: File
    format: iana:application/json
    label: grid
    doc: 'grid of the run: CRS, transform, shape; of several UTM zones their cells'
    outputBinding:
      glob: $(inputs.grid_name)
  selection:
    type: File
    format: iana:application/json
    label: selection
    doc: digest of the item list; dropped scenes with the reason
    outputBinding:
      glob: $(inputs.selection_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.items_name).run.json
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
