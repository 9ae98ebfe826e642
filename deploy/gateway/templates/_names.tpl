{{- /* Labels of what runs, and of what reaches and holds it. */ -}}
{{- define "labels" -}}
app.kubernetes.io/name: kubetenant-gateway, app.kubernetes.io/part-of: kubetenant, app.kubernetes.io/version: {{ toJson .Chart.AppVersion }}{{ range $key, $value := .Values.labels }}, {{ toJson $key }}: {{ toJson $value }}{{ end }}
{{- end -}}
