{{- /* CEL that says whether the caller names a tenant: by the extra, or a certificate's by a group; or has a
       service account's name in a certificate, which no service account has. */ -}}
{{- define "bound" -}}
(has(request.userInfo.extra) && "kubetenant.dev/tenant" in request.userInfo.extra || has(request.userInfo.groups) && request.userInfo.groups.exists(g, g.startsWith("tenant:")) || request.userInfo.username.startsWith("system:serviceaccount:") && has(request.userInfo.extra) && "authentication.kubernetes.io/credential-id" in request.userInfo.extra && request.userInfo.extra["authentication.kubernetes.io/credential-id"].exists(c, c.startsWith("X509SHA256=")))
{{- end -}}
{{- /* CEL that says whether the caller is an exempt identity of the control plane,
       which names no tenant. */ -}}
{{- define "exempt" -}}
(!{{ template "bound" . }} && (request.userInfo.username in {{ toJson .Values.exempt.users }} || {{ toJson .Values.exempt.userPrefixes }}.exists(p, request.userInfo.username.startsWith(p)) || has(request.userInfo.groups) && request.userInfo.groups.exists(g, g in {{ toJson .Values.exempt.groups }}) || request.userInfo.username in ["system:kubetenant:tenants", "system:serviceaccount:{{ .Release.Namespace }}:kubetenant-webhook", "system:serviceaccount:{{ .Release.Namespace }}:kubetenant-controller"{{ if .Values.certificates.selfManaged }}, "system:serviceaccount:{{ .Release.Namespace }}:kubetenant-certificates"{{ end }}]))
{{- end -}}
{{- /* CEL that says whether the caller is the control plane's or the system tenant's. */ -}}
{{- define "system" -}}
({{ template "exempt" . }} || (has(request.userInfo.extra) && "kubetenant.dev/tenant" in request.userInfo.extra ? request.userInfo.extra["kubetenant.dev/tenant"] == ["system"] : {{ if .Values.fromGroups }}has(request.userInfo.extra) && "authentication.kubernetes.io/credential-id" in request.userInfo.extra && request.userInfo.extra["authentication.kubernetes.io/credential-id"].exists(c, c.startsWith("X509SHA256=")) && has(request.userInfo.groups) && request.userInfo.groups.filter(g, g.startsWith("tenant:")) == ["tenant:system"]{{ else }}false{{ end }}))
{{- end -}}
{{- /* CEL that reports whether the caller is the control plane's, the system tenant's, or an account of the service's
       own namespace. */ -}}
{{- define "service" -}}
({{ template "system" . }} || !{{ template "bound" . }} && request.userInfo.username.startsWith("system:serviceaccount:{{ .Release.Namespace }}:"))
{{- end -}}
{{- /* CEL that says whether the request's namespace has the label of a tenant, and is none of the system namespaces,
       which are the system tenant's whatever label they have. */ -}}
{{- define "labelled" -}}
namespaceObject != null && has(namespaceObject.metadata.labels) && "kubetenant.dev/tenant" in namespaceObject.metadata.labels && !(namespaceObject.metadata.name in {{ toJson .Values.systemNamespaces }})
{{- end -}}
{{- /* CEL that says whether the manager deletes a managed object from a namespace that is being released from its tenant. */ -}}
{{- define "releases" -}}
request.operation == "DELETE" && namespaceObject != null && has(namespaceObject.metadata.annotations) && "kubetenant.dev/releasing" in namespaceObject.metadata.annotations && has(oldObject.metadata.labels) && "kubetenant.dev/managed" in oldObject.metadata.labels
{{- end -}}
{{- /* CEL that reports whether an object has or had an annotation of Publications. */ -}}
{{- define "publishes" -}}
["kubetenant.dev/publish", "kubetenant.dev/published"].exists(k, has(object.metadata) && has(object.metadata.annotations) && k in object.metadata.annotations || oldObject != null && has(oldObject.metadata) && has(oldObject.metadata.annotations) && k in oldObject.metadata.annotations)
{{- end -}}
{{- /* CEL that reports whether a new object is a copy of a Publication. */ -}}
{{- define "copy" -}}
object != null && has(object.metadata.labels) && "kubetenant.dev/managed" in object.metadata.labels && object.metadata.labels["kubetenant.dev/managed"] == "publication" && "kubetenant.dev/publication" in object.metadata.labels && has(object.metadata.annotations) && "kubetenant.dev/published" in object.metadata.annotations
{{- end -}}
{{- /* CEL that reports whether the manager creates the namespace of a Keystone project. */ -}}
{{- define "project" -}}
request.operation == "CREATE" && has(object.metadata.labels) && "kubetenant.dev/tenant" in object.metadata.labels && object.metadata.labels["kubetenant.dev/tenant"] != "system" && has(object.metadata.annotations) && "kubetenant.dev/keystone" in object.metadata.annotations && object.metadata.name.startsWith(object.metadata.labels["kubetenant.dev/tenant"] + "--") && !(object.metadata.name in {{ toJson .Values.systemNamespaces }})
{{- end -}}
{{- /* CEL that reports whether the manager creates the Tenant of a Keystone domain. It only has an ID. */ -}}
{{- define "createdTenant" -}}
request.operation == "CREATE" && object.spec.all(k, k in ["id", "access", "deletionPolicy"]) && (!has(object.spec.access) || object.spec.access == "Open") && (!has(object.spec.deletionPolicy) || object.spec.deletionPolicy == "Protect") && !has(object.metadata.ownerReferences) && (!has(object.metadata.annotations) || !("kubetenant.dev/keystone" in object.metadata.annotations))
{{- end -}}
{{- /* CEL that reports whether the schema .is keeps every field of the schema .was, down to .depth levels of fields.
       Lists and maps are not levels: their elements stand for them. */ -}}
{{- define "keepsFields" -}}
{{- $was := print "o" .depth }}{{ $is := print "n" .depth -}}
[{{ template "elements" .was }}].all({{ $was }}, [{{ template "elements" .is }}].all({{ $is }}, {{ template "anything" $is }} || !{{ template "anything" $was }} && (!has({{ $was }}.properties) || has({{ $is }}.properties) && {{ $was }}.properties.all(k, k in {{ $is }}.properties{{ if gt .depth 1 }} && {{ template "keepsFields" dict "was" (print $was ".properties[k]") "is" (print $is ".properties[k]") "depth" (sub .depth 1) }}{{ end }}))))
{{- end -}}
{{- define "elements" -}}
has({{ . }}.items) ? {{ . }}.items : has({{ . }}.additionalProperties) && type({{ . }}.additionalProperties) != bool ? {{ . }}.additionalProperties : {{ . }}
{{- end -}}
{{- define "anything" -}}
("x-kubernetes-preserve-unknown-fields" in {{ . }} && {{ . }}["x-kubernetes-preserve-unknown-fields"] == true)
{{- end -}}
{{- /* The resources of a policy for the kinds that the configuration allows to publish. */ -}}
{{- define "publishedRules" -}}
{{- range .Values.published }}
    - { apiGroups: [{{ toJson .group }}], apiVersions: ["*"], resources: [{{ toJson .resource }}, {{ toJson (print .resource "/*") }}], operations: [CREATE, UPDATE, DELETE] }
{{- end }}
{{- end -}}
{{- /* Labels of what runs, and of what reaches, holds and watches it. */ -}}
{{- define "labels" -}}
app.kubernetes.io/part-of: kubetenant, app.kubernetes.io/version: {{ toJson .Chart.AppVersion }}{{ range $key, $value := .Values.labels }}, {{ toJson $key }}: {{ toJson $value }}{{ end }}
{{- end -}}
{{- /* The key of a file in the Secret. The path itself is the key if it is a valid key, and otherwise its hash. */ -}}
{{- define "key" -}}
{{ if regexMatch "^[-_a-zA-Z0-9][-._a-zA-Z0-9]*$" . }}{{ . }}{{ else }}{{ sha256sum . }}{{ end }}
{{- end -}}
{{- /* What the pods of all deployments have in common. */ -}}
{{- define "pod" -}}
priorityClassName: {{ toJson .Values.priorityClassName }}
      securityContext: { runAsNonRoot: true, runAsUser: 65532, runAsGroup: 65532, fsGroup: 65532, fsGroupChangePolicy: OnRootMismatch, seccompProfile: { type: RuntimeDefault } }
      imagePullSecrets: {{ toJson .Values.imagePullSecrets }}
      nodeSelector: {{ toJson .Values.nodeSelector }}
      tolerations: {{ toJson .Values.tolerations }}
{{- end -}}
{{- define "container" -}}
image: {{ toJson (required "image: there is no default" .Values.image) }}
        imagePullPolicy: {{ toJson .Values.imagePullPolicy }}
        securityContext: { allowPrivilegeEscalation: false, readOnlyRootFilesystem: true, capabilities: { drop: [ALL] } }
{{- end -}}
{{- /* The volume of the configuration and its files. */ -}}
{{- define "config" -}}
- name: config
        secret:
          secretName: kubetenant-webhook-config
          items:
{{- range $path, $content := .Values.config }}
          - { key: {{ template "key" $path }}, path: {{ toJson $path }} }
{{- end }}
{{- end -}}
{{- /* Fails if the service writes files outside of its volume, or records that need a volume which outlives a Pod. */ -}}
{{- define "checkStorage" -}}
{{- if not .Values.admissionOnly -}}
{{- $type := .Values.storage.type -}}
{{- $config := fromYaml (index .Values.config "tenancy.yaml") -}}
{{- $audit := index $config "audit" -}}
{{- $usage := index $config "usage" -}}
{{- if $audit -}}
{{- if not $type -}}
{{- fail "the configuration has the section audit: set storage.type to EmptyDir or Claim" -}}
{{- end -}}
{{- template "checkPath" (list "audit.directory" (index $audit "directory")) -}}
{{- end -}}
{{- if $usage -}}
{{- if index $usage "directory" -}}
{{- if ne $type "Claim" -}}
{{- fail "the configuration has usage.directory: set storage.type to Claim, since unsent usage records must outlive a Pod" -}}
{{- end -}}
{{- template "checkPath" (list "usage.directory" (index $usage "directory")) -}}
{{- end -}}
{{- with index $usage "file" -}}
{{- template "checkPath" (list "usage.file.path" (index . "path")) -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- end -}}
{{- /* Fails if the path of a field is not in the volume of the service. */ -}}
{{- define "checkPath" -}}
{{- $path := toJson (index . 1) -}}
{{- if or (not (regexMatch "^\"/var/lib/kubetenant/[^/.\\\\\"]" $path)) (regexMatch "/\\.\\.(/|\"$)" $path) -}}
{{- fail (print (index . 0) ": must be below /var/lib/kubetenant, where the chart mounts the volume") -}}
{{- end -}}
{{- end -}}
