# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe products
doc: Make polygons, a QGIS style, the entropy and a table of zones from the finished maps of a run.
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
    - entryname: classes.list.json
      entry: '$(inputs.classes)

        '
    - entryname: probabilities.list.json
      entry: '$(inputs.probabilities)

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
- products
arguments:
- --classes
- '@classes.list.json'
- --probabilities
- '@probabilities.list.json'
inputs:
  classes:
    type:
      type: array
      items: File
    label: classes
    doc: 'class maps: one mosaic, one per cell, or one per scene'
    format: iana:image/tiff
  probabilities:
    type:
      type: array
      items: File
    label: probabilities
    doc: probability maps, in the order of the class maps
    format: iana:image/tiff
  products_name:
    type: string
    label: products
    doc: polygons.gpkg; of each map classes.tif with its style classes.qml and entropy.tif; zones.csv
    default: products
    inputBinding:
      prefix: --products
  zones:
    type:
    - 'null'
    - File
    label: zones
    doc: 'polygons whose classes or values are summed up, in any CRS: a vector file'
    inputBinding:
      prefix: --zones
  zone_name:
    type: string
    label: zone name
    doc: attribute of the zones with their names
    default: name
    inputBinding:
      prefix: --zone-name
  zone_layer:
    type:
    - 'null'
    - string
    label: zone layer
    doc: layer of the zones, where the file has several
    inputBinding:
      prefix: --zone-layer
  minimum_mapping_unit_ha:
    type: double
    label: minimum mapping unit ha
    doc: 'hectares below which a patch of one class gets the class of its largest neighbour, in the polygons only;
      0: none'
    default: 0.5
    inputBinding:
      prefix: --minimum-mapping-unit-ha
  mem_mb:
    type: int
    label: memory
    doc: memory of the job in MB
    default: 6000
  timelimit_s:
    type: int
    label: time limit
    doc: seconds after which the job is ended
    default: 10800
outputs:
  products:
    type: Directory
    label: products
    doc: polygons.gpkg; of each map classes.tif with its style classes.qml and entropy.tif; zones.csv
    outputBinding:
      glob: $(inputs.products_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.products_name).run.json
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
