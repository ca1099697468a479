# One role for each service account of deploy/kubernetes that needs AWS. A gateway needs none, and has none.

locals {
  oidc_issuer = replace(var.oidc_provider_arn, "/^.*:oidc-provider\\//", "")

  role_policies = {
    ingest = aws_iam_policy.ingest.arn
    fanout = aws_iam_policy.fanout.arn
    api    = aws_iam_policy.api.arn
    tables = aws_iam_policy.tables.arn
  }
}

resource "aws_iam_role" "service_account" {
  for_each = var.oidc_provider_arn == "" ? {} : local.role_policies

  name = "${var.name}-${each.key}"

  assume_role_policy = jsonencode({
    Version = "2012-10-17"
    Statement = [{
      Effect    = "Allow"
      Action    = "sts:AssumeRoleWithWebIdentity"
      Principal = { Federated = var.oidc_provider_arn }
      Condition = {
        StringEquals = {
          "${local.oidc_issuer}:aud" = var.oidc_audience
          "${local.oidc_issuer}:sub" = "system:serviceaccount:${var.namespace}:${each.key}"
        }
      }
    }]
  })
}

resource "aws_iam_role_policy_attachment" "service_account" {
  for_each = var.oidc_provider_arn == "" ? {} : local.role_policies

  role       = aws_iam_role.service_account[each.key].name
  policy_arn = each.value
}

output "roles" {
  description = "ARNs for the annotations of the service accounts."
  value       = { for name, role in aws_iam_role.service_account : name => role.arn }
}
