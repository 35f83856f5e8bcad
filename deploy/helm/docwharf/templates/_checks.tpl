{{/* Refuses values that would render, but not work. Each message says why. */}}
{{- define "docwharf.checks" -}}
{{- $version := .Values.staticExport.version -}}
{{- if and (not (kindIs "invalid" $version)) (not (kindIs "string" $version)) -}}
{{- fail (printf "staticExport.version is %v, which is not text: write it in quotes, because YAML reads 1.10 as the number 1.1" $version) -}}
{{- end -}}
{{- if regexMatch "\\p{Cc}|^\\s|\\s$" ($version | default "") -}}
{{- fail "staticExport.version: a label has no control characters and no space at its ends" -}}
{{- end -}}
{{- if has $version (list "active" "previous" "newest") -}}
{{- fail (printf "staticExport.version: %s cannot be a label, because docwharf uses this name itself" $version) -}}
{{- end -}}
{{- if regexMatch "\\p{Cc}" (include "docwharf.link" .) -}}
{{- fail "staticExport.bundleUrl: it has a line break or another control character, and a link is one line" -}}
{{- end -}}
{{- include "docwharf.checks.api" . -}}
{{- include "docwharf.checks.replicas" . -}}
{{- include "docwharf.checks.images" . -}}
{{- include "docwharf.checks.config" . -}}
{{- include "docwharf.checks.env" . -}}
{{- end -}}

{{- define "docwharf.checks.api" -}}
{{- if .Values.api.baseUrl -}}
{{- if not .Values.api.domain -}}
{{- fail "api.domain is missing: the management API exports one site, which it finds by its host name" -}}
{{- end -}}
{{- if not .Values.api.existingSecret -}}
{{- fail "api.existingSecret is missing: the chart stores no API key; make a Secret with the key and name it here" -}}
{{- end -}}
{{- else if or .Values.api.domain .Values.api.existingSecret -}}
{{- fail "api.baseUrl is missing: api.domain and api.existingSecret have no effect without the address of the API" -}}
{{- end -}}
{{- end -}}

{{- define "docwharf.checks.replicas" -}}
{{- if gt (int .Values.replicaCount) 1 -}}
{{- if .Values.api.baseUrl -}}
{{- fail (printf "replicaCount is %d with api.baseUrl: each replica would start an export job of its own for each change" (int .Values.replicaCount)) -}}
{{- end -}}
{{- if .Values.persistence.enabled -}}
{{- fail (printf "replicaCount is %d with one volume: a store has one writer, so the other replicas could not open it; set persistence.enabled to false" (int .Values.replicaCount)) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "docwharf.checks.images" -}}
{{- range $name, $image := dict "image" .Values.image "nginx.image" .Values.nginx.image -}}
{{- if and (not (kindIs "invalid" $image.tag)) (not (kindIs "string" $image.tag)) -}}
{{- fail (printf "%s.tag is %v, which is not text: write it in quotes, because YAML reads 1.10 as the number 1.1" $name $image.tag) -}}
{{- end -}}
{{- if and (eq ($image.tag | default "") "latest") (not $image.digest) -}}
{{- fail (printf "%s.tag is latest: a restart of the pod could change the program unnoticed; name a version" $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- define "docwharf.checks.config" -}}
{{- $text := (include "docwharf.configOutline" . | fromJson).text -}}
{{- $name := `(staticExport|"staticExport"|'staticExport')` -}}
{{- if regexMatch (printf `(?m)^[ \t]*%s[ \t]*=` $name) $text -}}
{{- fail "config: write staticExport as a table, [staticExport], because the chart adds its keys to that table" -}}
{{- end -}}
{{- $added := list "enabled" -}}
{{- if .Values.staticExport.version -}}
{{- $added = append $added "version" -}}
{{- end -}}
{{- if include "docwharf.link" . -}}
{{- $added = concat $added (list "bundleUrl" "bundleUrlFile") -}}
{{- end -}}
{{- /* The lines after [staticExport], to the next table; then the dotted keys at the top. */ -}}
{{- $table := regexFind (printf `%s(\n[ \t]*([^\[ \t].*)?)*` (include "docwharf.tableHeader" .)) $text -}}
{{- range $added -}}
{{- $key := printf `(%s|"%s"|'%s')[ \t]*=` . . . -}}
{{- if or (regexMatch (printf `(?m)^[ \t]*%s` $key) $table) (regexMatch (printf `(?m)^[ \t]*%s[ \t]*\.[ \t]*%s` $name $key) $text) -}}
{{- fail (printf "config: it sets staticExport.%s, but the chart adds the value staticExport.%s to the same table: keep one of the two" . (. | trimSuffix "File")) -}}
{{- end -}}
{{- end -}}
{{- if and .Values.staticExport.enabled (not .Values.api.baseUrl) (not .Values.config) (eq (include "docwharf.link" .) "") -}}
{{- fail "there is no source: set staticExport.bundleUrl or api.baseUrl, or set staticExport.enabled to false to serve what the volume has" -}}
{{- end -}}
{{- if and (not .Values.staticExport.enabled) (not .Values.persistence.enabled) (not .Values.config) -}}
{{- fail "there is nothing to serve: staticExport.enabled is false, so no version is fetched, and persistence.enabled is false, so there is no volume with one" -}}
{{- end -}}
{{- end -}}

{{- define "docwharf.checks.env" -}}
{{- range .Values.extraEnv -}}
{{- if has .name (list "DOCWHARF_API_KEY" "DOCWHARF_STATIC_EXPORT__BUNDLE_URL") -}}
{{- fail (printf "extraEnv: %s is a secret, and more programs see the environment of a process than a file; use api.existingSecret or staticExport.bundleUrl" .name) -}}
{{- end -}}
{{- end -}}
{{- end -}}
