{{- /* CEL that says whether the caller names a tenant: by the extra, or a certificate's by a group; or has a
       service account's name in a certificate, which no service account has. */ -}}
{{- define "bound" -}}
(has(request.userInfo.extra) && "kubetenant.dev/tenant" in request.userInfo.extra || has(request.userInfo.groups) && request.userInfo.groups.exists(g, g.startsWith("tenant:")) || request.userInfo.username.startsWith("system:serviceaccount:") && has(request.userInfo.extra) && "authentication.kubernetes.io/credential-id" in request.userInfo.extra && request.userInfo.extra["authentication.kubernetes.io/credential-id"].exists(c, c.startsWith("X509SHA256=")))
{{- end -}}
{{- /* CEL that says whether the caller is an exempt identity of the control plane,
       which names no tenant. */ -}}
{{- define "exempt" -}}
(!{{ template "bound" . }} && (request.userInfo.username in {{ toJson .Values.exempt.users }} || {{ toJson .Values.exempt.userPrefixes }}.exists(p, request.userInfo.username.startsWith(p)) || has(request.userInfo.groups) && request.userInfo.groups.exists(g, g in {{ toJson .Values.exempt.groups }}) || request.userInfo.username in ["system:serviceaccount:{{ .Release.Namespace }}:kubetenant-webhook", "system:serviceaccount:{{ .Release.Namespace }}:kubetenant-controller"]))
{{- end -}}
