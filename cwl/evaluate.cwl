# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe evaluate
doc: Score the map against the labels in the test areas, beside a majority-class and a per-pixel baseline.
intent:
- edam:operation_2238
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
    ramMin: 3000
    ramMax: 9000
  ToolTimeLimit:
    timelimit: 7200
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
- evaluate
inputs:
  classes:
    type:
      type: array
      items: File
    label: classes
    doc: 'maps of classes or values: one mosaic, or one per scene in the order of the tiles'
    format: iana:image/tiff
    inputBinding:
      prefix: --classes
  tiles:
    type:
      type: array
      items: Directory
    label: tiles
    doc: tile stores that the baseline is trained on
    inputBinding:
      prefix: --tiles
  labels:
    type:
      type: array
      items: Directory
    label: labels
    doc: label store for all scenes, or one per scene
    inputBinding:
      prefix: --labels
  chips:
    type: File
    label: chips
    doc: 'split file: chips of the train, val and test splits'
    format: iana:application/json
    inputBinding:
      prefix: --chips
  metrics_name:
    type: string
    label: metrics
    doc: scores of the map and of the baselines
    default: metrics.json
    inputBinding:
      prefix: --metrics
  probabilities:
    type:
      type: array
      items: File
    label: probabilities
    doc: maps of probabilities in the order of the maps, for their calibration
    format: iana:image/tiff
    default: []
    inputBinding:
      prefix: --probabilities
  baseline_pixels:
    type: int
    label: baseline pixels
    doc: maximum number of training pixels of the per-pixel baseline
    default: 100000
    inputBinding:
      prefix: --baseline-pixels
  seed:
    type: int
    label: seed
    doc: random seed of the baseline's sample of pixels
    default: 0
    inputBinding:
      prefix: --seed
outputs:
  metrics:
    type: File
    format: iana:application/json
    label: metrics
    doc: scores of the map and of the baselines
    outputBinding:
      glob: $(inputs.metrics_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.metrics_name).run.json
