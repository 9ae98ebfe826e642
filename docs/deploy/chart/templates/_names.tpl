{{- /* CEL that says whether the caller is an exempt identity of the control plane. */ -}}
{{- define "exempt" -}}
(request.userInfo.username in {{ toJson .Values.exempt.users }} || {{ toJson .Values.exempt.userPrefixes }}.exists(p, request.userInfo.username.startsWith(p)) || request.userInfo.groups.exists(g, g in {{ toJson .Values.exempt.groups }}) || request.userInfo.username in ["system:serviceaccount:{{ .Release.Namespace }}:kubetenant-webhook", "system:serviceaccount:{{ .Release.Namespace }}:kubetenant-controller"])
{{- end -}}
