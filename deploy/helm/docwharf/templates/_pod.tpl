{{/* docwharf: the container of a server pod, or a native sidecar. */}}
{{- define "docwharf.container" -}}
{{- $sidecar := eq .Values.mode "sidecar" -}}
- name: docwharf
  image: {{ include "docwharf.image" (list .Values.image .Chart.AppVersion) | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  {{- if $sidecar }}
  # It runs as long as the pod. nginx starts when the startup probe has succeeded: the first version is published.
  restartPolicy: Always
  args: [run, --no-serve]
  {{- else }}
  args: [run]
  {{- end }}
  env:
    {{- include "docwharf.env" . | nindent 4 }}
  ports:
    {{- if not $sidecar }}
    - name: http
      containerPort: 8080
    {{- end }}
    - name: admin
      containerPort: 8081
  startupProbe:
    httpGet:
      path: {{ $sidecar | ternary "/readyz" "/livez" }}
      port: admin
    periodSeconds: 2
    timeoutSeconds: 5
    # Half an hour for the first version of a sidecar, the longest time that docwharf waits for an export job.
    failureThreshold: {{ $sidecar | ternary 900 150 }}
  livenessProbe:
    httpGet:
      path: /livez
      port: admin
    periodSeconds: 10
    timeoutSeconds: 5
    failureThreshold: 3
  {{- if not $sidecar }}
  # Ready once a verified version is served. It does not depend on the source.
  readinessProbe:
    httpGet:
      path: /readyz
      port: admin
    periodSeconds: 5
    timeoutSeconds: 5
  {{- end }}
  resources:
    {{- toYaml .Values.resources | nindent 4 }}
  securityContext:
    {{- include "docwharf.securityContext" . | nindent 4 }}
  volumeMounts:
    - name: store
      mountPath: /data
    - name: config
      mountPath: /etc/docwharf
      readOnly: true
    {{- if $sidecar }}
    - name: www
      mountPath: /srv/www
    {{- end }}
    {{- if .Values.api.baseUrl }}
    - name: api-key
      mountPath: /secrets/api
      readOnly: true
    {{- end }}
    {{- with .Values.extraVolumeMounts }}
    {{- toYaml . | nindent 4 }}
    {{- end }}
{{- end -}}

{{- define "docwharf.nginxContainer" -}}
- name: nginx
  image: {{ include "docwharf.image" (list .Values.nginx.image "") | quote }}
  imagePullPolicy: {{ .Values.nginx.image.pullPolicy }}
  command: [nginx, -e, stderr, -c, /etc/nginx-site/nginx.conf]
  ports:
    - name: http
      containerPort: 8080
  startupProbe:
    httpGet:
      path: /_nginx/livez
      port: http
    periodSeconds: 2
    failureThreshold: 30
  livenessProbe:
    httpGet:
      path: /_nginx/livez
      port: http
    periodSeconds: 10
    timeoutSeconds: 5
  readinessProbe:
    httpGet:
      path: /_nginx/livez
      port: http
    periodSeconds: 5
    timeoutSeconds: 5
  resources:
    {{- toYaml .Values.nginx.resources | nindent 4 }}
  securityContext:
    {{- include "docwharf.securityContext" . | nindent 4 }}
  volumeMounts:
    - name: www
      mountPath: /srv/www
      readOnly: true
    - name: nginx
      mountPath: /etc/nginx-site
      readOnly: true
    - name: tmp
      mountPath: /tmp
{{- end -}}

{{- define "docwharf.volumes" -}}
- name: store
  {{- if .Values.persistence.enabled }}
  persistentVolumeClaim:
    claimName: {{ .Values.persistence.existingClaim | default (include "docwharf.fullname" .) }}
  {{- else }}
  emptyDir:
    sizeLimit: {{ .Values.persistence.size }}
  {{- end }}
- name: config
  secret:
    secretName: {{ include "docwharf.fullname" . }}
    defaultMode: 0440
{{- if .Values.api.baseUrl }}
- name: api-key
  secret:
    secretName: {{ .Values.api.existingSecret }}
    defaultMode: 0440
    items:
      - key: {{ .Values.api.secretKey | quote }}
        path: api-key
{{- end }}
{{- if eq .Values.mode "sidecar" }}
- name: www
  emptyDir:
    sizeLimit: {{ .Values.nginx.sizeLimit }}
- name: nginx
  configMap:
    name: {{ include "docwharf.nginxName" . }}
- name: tmp
  emptyDir:
    sizeLimit: 64Mi
{{- end }}
{{- with .Values.extraVolumes }}
{{ toYaml . }}
{{- end }}
{{- end -}}
