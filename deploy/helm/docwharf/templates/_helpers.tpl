{{/*
A name that is a DNS label for a Service: it begins with a letter, has no dots and at most 53 characters, which leaves
room for suffixes. A name that is changed for this gets a digest, so that "a.b" and "a-b" do not become one name.
*/}}
{{- define "docwharf.label" -}}
{{- $label := . | replace "." "-" -}}
{{- if regexMatch "^[0-9]" $label -}}
{{- $label = printf "d-%s" $label -}}
{{- end -}}
{{- if or (ne $label .) (gt (len $label) 53) -}}
{{- printf "%s-%s" ($label | trunc 44 | trimSuffix "-") (. | sha256sum | trunc 8) -}}
{{- else -}}
{{- $label -}}
{{- end -}}
{{- end -}}

{{- define "docwharf.name" -}}
{{- .Values.nameOverride | default .Chart.Name -}}
{{- end -}}

{{- define "docwharf.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride -}}
{{- else -}}
{{- $name := include "docwharf.name" . -}}
{{- if contains $name .Release.Name -}}
{{- include "docwharf.label" .Release.Name -}}
{{- else -}}
{{- include "docwharf.label" (printf "%s-%s" .Release.Name $name) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* nginx reads its configuration at its start only. With a digest in the name, a changed file restarts the pod. */}}
{{- define "docwharf.nginxName" -}}
{{- printf "%s-nginx-%s" (include "docwharf.fullname" .) (include "docwharf.nginxConfig" . | sha256sum | trunc 8) -}}
{{- end -}}

{{- define "docwharf.nginxConfig" -}}
{{- .Files.Get "files/nginx.conf" | replace "listen 8080;" (printf "listen %s;" .Values.nginx.listen) -}}
{{- end -}}

{{- define "docwharf.selectorLabels" -}}
app.kubernetes.io/name: {{ include "docwharf.name" . | quote }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
{{- end -}}

{{- define "docwharf.labels" -}}
{{ include "docwharf.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .Release.Service | quote }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | quote }}
{{- end -}}

{{/* The image of a block {repository, tag, digest}, and the tag that it has by default. */}}
{{- define "docwharf.image" -}}
{{- $image := index . 0 -}}
{{- if $image.digest -}}
{{- printf "%s@%s" $image.repository $image.digest -}}
{{- else -}}
{{- printf "%s:%s" $image.repository ($image.tag | default (index . 1)) -}}
{{- end -}}
{{- end -}}

{{/*
The configuration file: the text of `config`, with the vendor's block in its table [staticExport]. It is in the Secret
beside the link, because the kubelet replaces all files of a Secret at once: a new link and its version arrive together.
*/}}
{{- define "docwharf.config" -}}
{{- $outline := include "docwharf.configOutline" . | fromJson -}}
{{- $text := $outline.text -}}
{{- $lines := list (printf "enabled = %t" .Values.staticExport.enabled) -}}
{{- with .Values.staticExport.version -}}
{{- $lines = append $lines (printf "version = %s" (toJson .)) -}}
{{- end -}}
{{- if include "docwharf.link" . -}}
{{- $lines = append $lines "bundleUrlFile = \"bundleUrl\"" -}}
{{- end -}}
{{- $header := include "docwharf.tableHeader" . -}}
{{- if regexMatch $header $text -}}
{{- $text = regexReplaceAllLiteral $header $text (printf "[staticExport]\n%s" (join "\n" $lines)) -}}
{{- else -}}
{{- range $lines }}
{{- printf "staticExport.%s\n" . -}}
{{- end -}}
{{- end -}}
{{- range $number, $string := $outline.strings -}}
{{- $text = replace (printf "\x01%d\x01" $number) $string $text -}}
{{- end -}}
{{- $text -}}
{{- end -}}

{{/* A regular expression for the line [staticExport] in the outline of `config`. */}}
{{- define "docwharf.tableHeader" -}}
(?m)^[ \t]*\[[ \t]*(staticExport|"staticExport"|'staticExport')[ \t]*\][ \t\r]*(#.*)?$
{{- end -}}

{{/*
`config` as JSON: "text" has a placeholder, two control characters and a number, in place of each string of several
lines, and "strings" has these strings. What looks like a table or a key in such a string is none. (Helm can parse TOML
since 3.18 only.)
*/}}
{{- define "docwharf.configOutline" -}}
{{- $token := `(?s)#[^\n]*|"""(?:[^\\]|\\.)*?"""+|'''.*?'''+|"(?:[^"\\\n]|\\.)*"|'[^'\n]*'|[^"'#]+|.` -}}
{{- $text := list -}}
{{- $strings := list -}}
{{- range regexFindAll $token (.Values.config | default "") -1 -}}
{{- if or (hasPrefix "\"\"\"" .) (hasPrefix "'''" .) -}}
{{- $text = append $text (printf "\x01%d\x01" (len $strings)) -}}
{{- $strings = append $strings . -}}
{{- else -}}
{{- $text = append $text . -}}
{{- end -}}
{{- end -}}
{{- dict "text" (join "" $text) "strings" $strings | toJson -}}
{{- end -}}

{{- define "docwharf.link" -}}
{{- .Values.staticExport.bundleUrl | default "" | trim -}}
{{- end -}}

{{/* The variables of docwharf's container, as YAML: those of the chart, then those of extraEnv. */}}
{{- define "docwharf.env" -}}
{{- $own := list (dict "name" "DOCWHARF_STORE__PATH" "value" "/data") -}}
{{- if eq .Values.mode "sidecar" -}}
{{- $own = append $own (dict "name" "DOCWHARF_PUBLISH__DIRECTORY" "value" "/srv/www") -}}
{{- else -}}
{{- $own = append $own (dict "name" "DOCWHARF_SERVER__LISTEN" "value" "0.0.0.0:8080") -}}
{{- end -}}
{{- $own = append $own (dict "name" "DOCWHARF_ADMIN__LISTEN" "value" "0.0.0.0:8081") -}}
{{- if .Values.api.baseUrl -}}
{{- $own = append $own (dict "name" "DOCWHARF_API__BASE_URL" "value" .Values.api.baseUrl) -}}
{{- $own = append $own (dict "name" "DOCWHARF_API__DOMAIN" "value" .Values.api.domain) -}}
{{- with .Values.api.projectId -}}
{{- $own = append $own (dict "name" "DOCWHARF_API__PROJECT_ID" "value" .) -}}
{{- end -}}
{{- $own = append $own (dict "name" "DOCWHARF_API__KEY_FILE" "value" "/secrets/api/api-key") -}}
{{- end -}}
{{- $replaced := dict -}}
{{- range .Values.extraEnv -}}
{{- $_ := set $replaced .name true -}}
{{- end -}}
{{- $env := list -}}
{{- range $own -}}
{{- if not (hasKey $replaced .name) -}}
{{- $env = append $env . -}}
{{- end -}}
{{- end -}}
{{- concat $env .Values.extraEnv | toYaml -}}
{{- end -}}

{{- define "docwharf.securityContext" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities:
  drop: [ALL]
{{- end -}}
