# Derived from eopipe/stages by `make sync`; do not edit.
cwlVersion: v1.2
class: Workflow
$namespaces:
  edam: http://edamontology.org/
  iana: https://www.iana.org/assignments/media-types/
  s: https://schema.org/
label: eopipe composites
doc: One composite for each period that has scenes.
intent:
- edam:operation_3436
s:license: https://spdx.org/licenses/Apache-2.0
s:author:
- s:name: The eopipe team
  s:email: team@example.org
  s:url: https://github.com/eopipe/eopipe
requirements:
  MultipleInputFeatureRequirement: {}
  ScatterFeatureRequirement: {}
  StepInputExpressionRequirement: {}
  SubworkflowFeatureRequirement: {}
inputs:
  tiles:
    type:
      type: array
      items: Directory
    label: tiles
    doc: tile stores of all scenes
  items:
    type: Directory
    label: items
    doc: frozen STAC Items of the run
  composite_method:
    type: string
    label: composite.method
    doc: 'how observations are combined: median of each band, or for all bands the observation nearest the middle
      of the period (middle), of highest NDVI (greenest) or of lowest blue (clearest); none: train on scenes (none
      or median or middle or greenest or clearest)'
    default: none
  composite_period:
    type: string
    label: composite.period
    doc: length of a period; there is one composite per period (all or year or season or month)
    default: all
  composite_stack:
    type: string
    label: composite.stack
    doc: stack these parts of a period as separate bands, e.g. red_JJA; of all time also years, e.g. red_2019 (none
      or year or season or month)
    default: none
  composite_parts:
    type:
      type: array
      items: string
    label: composite.parts
    doc: 'parts to stack, e.g. 2017 2021, MAM JJA or 05 06 (default: all parts with scenes)'
    default: []
  composite_gaps:
    type: string
    label: composite.gaps
    doc: 'a stacked season or month without an observation of a pixel: filled with the median of the parts that
      have one, where these are at least half; or the pixel is invalid, as it always is where a year lacks one (fill
      or invalid)'
    default: fill
  composite_memory_mb:
    type: int
    label: composite.memory_mb
    doc: memory limit in MB for the pixels of all dates; larger grids are read block by block
    default: 512
  composite_mem_mb:
    type: int
    label: memory of composite
    doc: memory of the job in MB
    default: 1512
  composite_timelimit_s:
    type: int
    label: time limit of composite
    doc: seconds after which the job is ended
    default: 1980
steps:
  periods:
    label: periods
    doc: Group the tiles of the scenes by the period of their composite.
    run: periods.cwl
    in:
      items: items
      tiles: tiles
      period: composite_period
      stack: composite_stack
      parts: composite_parts
    out:
    - groups
    - names
  composite:
    label: composite
    doc: Composite the scenes of a period into one image, pixel by pixel.
    run: composite.cwl
    scatter:
    - tiles
    - composite_name
    scatterMethod: dotproduct
    in:
      method: composite_method
      period: composite_period
      stack: composite_stack
      parts: composite_parts
      gaps: composite_gaps
      memory_mb: composite_memory_mb
      mem_mb: composite_mem_mb
      timelimit_s: composite_timelimit_s
      tiles: periods/groups
      composite_name: periods/names
    out:
    - composite
    - record
outputs:
  images:
    type:
      type: array
      items: Directory
    label: composites
    doc: one Zarr store per period
    outputSource: composite/composite
  record:
    type:
      type: array
      items: File
    label: records
    doc: run records of the jobs
    format: iana:application/json
    outputSource: composite/record
