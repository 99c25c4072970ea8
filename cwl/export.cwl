# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: CommandLineTool
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe export
doc: Export the model to ONNX and compare its output with the original on real chips.
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
- export
arguments: []
inputs:
  model:
    type: Directory
    label: model
    doc: trained model
    inputBinding:
      prefix: --model
  tiles:
    type: Directory
    label: tiles
    doc: tile store whose pixels the comparison uses
    inputBinding:
      prefix: --tiles
  onnx_name:
    type: string
    label: onnx
    doc: 'ONNX model: normalisation, network, and softmax or scaling of the output in one graph'
    default: model.onnx
    inputBinding:
      prefix: --onnx
  check_name:
    type: string
    label: check
    doc: largest difference from the original model
    default: export.json
    inputBinding:
      prefix: --check
  allow_code:
    type:
    - 'null'
    - string
    label: allow code
    doc: 'permission to run the code of a custom model: the class that its model.json names, as module:Class or
      file.py:Class'
    inputBinding:
      prefix: --allow-code
  mem_mb:
    type: int
    label: memory
    doc: memory of the job in MB
    default: 2500
  timelimit_s:
    type: int
    label: time limit
    doc: seconds after which the job is ended
    default: 3600
outputs:
  onnx:
    type: File
    format: edam:format_2333
    label: onnx
    doc: 'ONNX model: normalisation, network, and softmax or scaling of the output in one graph'
    outputBinding:
      glob: $(inputs.onnx_name)
  check:
    type: File
    format: iana:application/json
    label: check
    doc: largest difference from the original model
    outputBinding:
      glob: $(inputs.check_name)
  record:
    type: File
    format: iana:application/json
    label: run record
    doc: what the job did
    outputBinding:
      glob: $(inputs.onnx_name).run.json
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
